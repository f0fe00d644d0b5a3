import { z } from 'zod';
import {
  defineEvents,
  type InferEvents,
  OnWebhookEvent,
  type WebhookEvent,
  type WebhookEventData,
  WebhookModule,
  type WebhookPublisher,
} from 'nestjs-webhook-token';

class InvoiceSent {
  id!: string;
}

const events = defineEvents({
  'invoice.paid': {
    schema: z.object({ id: z.string(), total: z.number().default(0) }),
    examples: [{ id: 'i-1' }],
  },
  'invoice.sent': { dto: InvoiceSent, examples: [{ id: 'i-1' }] },
  'invoice.archived': { description: 'Its data is not described.' },
});

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap extends InferEvents<typeof events> {}
}

export const module = WebhookModule.forRoot({ events });

type Exactly<One, Other> = [One, Other] extends [Other, One] ? true : false;

/** The data as it is sent: a default of the schema may be absent. */
export const paid: Exactly<
  WebhookEventData<'invoice.paid'>,
  { id: string; total?: number | undefined }
> = true;
export const sent: Exactly<WebhookEventData<'invoice.sent'>, InvoiceSent> = true;

export class Handlers {
  @OnWebhookEvent('invoice.sent')
  onSent(data: InvoiceSent, event: WebhookEvent<'invoice.sent'>): string {
    return event.data.id + data.id;
  }
}

export async function publish(publisher: WebhookPublisher): Promise<void> {
  await publisher.publish('invoice.paid', { id: 'i-1' });
  await publisher.publish('invoice.archived', { any: 'thing' });
  // @ts-expect-error the id is missing
  await publisher.publish('invoice.paid', { total: 1 });
  // @ts-expect-error the event is not defined
  await publisher.publish('invoice.payed', { id: 'i-1' });
}

defineEvents({
  'invoice.paid': {
    schema: z.object({ id: z.string() }),
    // @ts-expect-error the example does not have the schema's type
    examples: [{ id: 1 }],
  },
});
