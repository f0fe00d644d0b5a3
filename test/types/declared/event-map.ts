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

export interface Customer {
  since: string;
}

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': OrderCreated;
    'order.cancelled': OrderCancelled;
    'order.item.added': ItemAdded;
    'refund.paid': { refund: string };
    'batch.done': readonly string[];
    'ping.sent': undefined;
    'user.joined': { createdAt: string; customer: Customer };
    'price.set': string;
    'note.left': { text: string } | undefined;
  }
}
