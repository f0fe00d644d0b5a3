/** What the shop sends about a new order. */
export interface OrderCreated {
  readonly id: string;
  readonly customer: string;
  /** In cents. */
  readonly total: number;
}

/** What the shop of sample 05 sends about an invoice. */
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

// From here on the compiler checks event names and data.
declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': OrderCreated;
    'order.updated': OrderUpdated;
    'invoice.created': InvoiceCreated;
  }
}
