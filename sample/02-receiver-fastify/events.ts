import type { z } from 'zod';
import type { Payment } from './payment.schema.js';

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    /** A CSV file: what is no JSON arrives as the bytes that were sent. */
    'stock.exported': Buffer;
    /** As the bank sends it; the handler gets what the schema makes of it. */
    'payment.received': z.input<typeof Payment>;
  }
}
