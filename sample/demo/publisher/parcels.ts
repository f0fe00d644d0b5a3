import { randomBytes } from 'node:crypto';

const ARTICLES = 5_000;
const CSV_LINES = 400;
const PHOTO_BYTES = 5 * 1024 * 1024;

/** Data of an event; bytes need a content type. */
export interface Parcel {
  readonly data: unknown;
  readonly contentType?: string;
}

/** Creates the data of each event. */
export const PARCELS = {
  'order.created': () => ({ data: { id: 'o-1', total: 4200 } }),
  'catalogue.exported': () => ({ data: catalogue() }),
  'stock.exported': () => ({ data: csv(), contentType: 'text/csv' }),
  'photo.uploaded': () => ({ data: randomBytes(PHOTO_BYTES), contentType: 'image/jpeg' }),
  'invoice.paid': () => ({ data: { id: 'i-1', total: 4200 } }),
} satisfies Record<string, () => Parcel>;

export type ParcelName = keyof typeof PARCELS;

function catalogue(): object {
  return {
    articles: Array.from({ length: ARTICLES }, (_, id) => ({
      id,
      name: `Pencil no. ${id}, red and blue`,
      price: 100 + (id % 50),
    })),
  };
}

function csv(): Buffer {
  const lines = Array.from({ length: CSV_LINES }, (_, id) => `${id},${id % 7}`);
  return Buffer.from(['article,pieces', ...lines, ''].join('\n'));
}
