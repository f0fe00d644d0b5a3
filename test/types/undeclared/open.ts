/* oxlint-disable no-unused-vars -- this file is only compiled, never run */
import {
  OnWebhookEvent,
  WebhookContext,
  WebhookData,
  WebhookEvent,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { signWebhook } from 'nestjs-webhook-token/testing';

class AnyDto {
  id!: string;
}

export class Handlers {
  @OnWebhookEvent('whatever.happened')
  none(): void {}

  @OnWebhookEvent('whatever.happened')
  dto(data: AnyDto, event: WebhookEvent): void {
    // @ts-expect-error without a declaration, the data is `unknown`
    const id: string = event.data.id;
  }

  @OnWebhookEvent(['order.*', 'refund.**'], { receiver: 'default' })
  named(data: AnyDto, event: WebhookEvent<'order.created'>): void {}

  @OnWebhookEvent('order.created')
  decorated(@WebhookContext() event: WebhookEvent, @WebhookData('id') id: string): void {}

  @OnWebhookEvent('**')
  list(data: number[]): void {}
}

declare const publisher: WebhookPublisher;

export async function publish(): Promise<void> {
  await publisher.publish('whatever.happened', { any: 'thing' });
  await publisher.publish('whatever.happened');
  await publisher.publish('whatever.happened', 42, { id: 'evt-1' });
  await publisher.send('crm', 'whatever.happened', [1]);
  await publisher.sign('crm', 'whatever.happened', Buffer.from('x'), { contentType: 'text/plain' });
  await signWebhook('whatever.happened', { any: 'thing' }, { issuer: 'i', secret: 's' });
}

/** A name that is known only at run time has the type `string`. */
export async function publishAny(name: string): Promise<void> {
  await publisher.publish(name, { any: 'thing' });
  await publisher.send('crm', name);
  await signWebhook(name, undefined, { issuer: 'i', secret: 's' });
}
