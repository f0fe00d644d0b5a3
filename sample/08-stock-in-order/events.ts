/** How many pieces of an item are left. */
export interface StockChanged {
  readonly sku: string;
  readonly level: number;
}

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'stock.changed': StockChanged;
  }
}
