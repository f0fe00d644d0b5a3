import type { z } from 'zod';
import type { Payment } from './payment.schema.js';

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    /** A CSV file: data that is not JSON arrives as a Buffer. */
    'stock.exported': Buffer;
    /** The data before validation; the handler gets the schema's output. */
    'payment.received': z.input<typeof Payment>;
  }
}
