// Issuer and data of the events that every scenario uses.

export const ISSUER = 'https://shop.example';
export const SECRET = 'a-secret-of-the-benchmark-32-bytes-or-more';

/** An order with this many lines: many small members, as is typical of JSON. */
export function dataOf(items) {
  const lines = Array.from({ length: items }, (_, i) => ({
    sku: `sku-${i}`,
    quantity: i,
    price: 12.5,
    name: 'A thing with a name',
  }));
  return { id: 'ord_1', lines };
}
