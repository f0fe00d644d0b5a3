/** Data of the shop's `order.created`. */
export interface OrderCreated {
  readonly id: string;
  readonly customer: string;
  /** In cents. */
  readonly total: number;
}

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': OrderCreated;
  }
}
