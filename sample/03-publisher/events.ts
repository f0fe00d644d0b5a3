import type { Order } from './order.js';

// Declared events: `publish` accepts no others, and checks the data of each.
declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': Pick<Order, 'id' | 'customer' | 'total'>;
    'order.updated': Pick<Order, 'id' | 'status'>;
  }
}
