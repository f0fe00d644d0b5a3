export const ORDER_STATUSES = ['new', 'paid', 'shipped', 'cancelled'] as const;

export type OrderStatus = (typeof ORDER_STATUSES)[number];

export interface Order {
  readonly id: string;
  readonly customer: string;
  /** In cents. */
  readonly total: number;
  readonly status: OrderStatus;
}
