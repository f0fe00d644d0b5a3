/** Data of the shop's `order.created`. */
export interface OrderCreated {
  readonly id: string;
  readonly customer: string;
  /** In cents. */
  readonly total: number;
}

/** Data of `invoice.created`, which sample 05 sends. */
export interface InvoiceCreated {
  readonly id: string;
  /** In cents. */
  readonly total: number;
}

export type OrderStatus = 'paid' | 'shipped' | 'cancelled';

export interface OrderUpdated {
  readonly id: string;
  readonly status: OrderStatus;
}

// Declared events: the compiler checks their names and data.
declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': OrderCreated;
    'order.updated': OrderUpdated;
    'invoice.created': InvoiceCreated;
  }
}
