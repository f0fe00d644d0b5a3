export interface OrderCreated {
  id: string;
  total: number;
}

export interface OrderCancelled {
  id: string;
  reason: string;
}

export interface ItemAdded {
  item: string;
}

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': OrderCreated;
    'order.cancelled': OrderCancelled;
    'order.item.added': ItemAdded;
    'refund.paid': { refund: string };
    'batch.done': readonly string[];
    'ping.sent': undefined;
  }
}
