import { defineEvents, type InferEvents } from 'nestjs-webhook-token';
import { z } from 'zod';

export const events = defineEvents({
  'order.created': {
    description: 'A customer ordered something from the shop.',
    schema: z.object({ id: z.string(), customer: z.string(), total: z.int().positive() }),
    examples: [{ id: 'o-1', customer: 'Ada', total: 4_200 }],
  },
  'parcel.shipped': {
    description: 'The warehouse has sent the parcel of an order.',
    schema: z.object({ orderId: z.string(), tracking: z.string() }),
  },
});

// Publishing and handling them is checked by the compiler.
declare module 'nestjs-webhook-token' {
  interface WebhookEventMap extends InferEvents<typeof events> {}
}
