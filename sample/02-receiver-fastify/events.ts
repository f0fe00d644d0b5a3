import type { z } from 'zod';
import type { Payment } from './payment.schema.js';

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    /** A CSV file: data that is not JSON arrives as the bytes that were sent. */
    'stock.exported': Buffer;
    /** As the bank sends it; the handler gets the schema's output. */
    'payment.received': z.input<typeof Payment>;
  }
}
