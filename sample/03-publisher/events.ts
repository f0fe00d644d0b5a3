import type { Order } from './order.js';

// From here on `publish` accepts these events only, each with its own data.
declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': Pick<Order, 'id' | 'customer' | 'total'>;
    'order.updated': Pick<Order, 'id' | 'status'>;
  }
}
