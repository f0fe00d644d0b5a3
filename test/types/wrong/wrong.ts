/* oxlint-disable no-unused-vars -- this file is only compiled, never run */
/** Each marked line must cause an error; otherwise the programs without errors would prove nothing. */
import { OnWebhookEvent, WebhookPublisher } from 'nestjs-webhook-token';

declare module 'nestjs-webhook-token' {
  interface WebhookEventMap {
    'order.created': { id: string };
  }
}

declare const publisher: WebhookPublisher;

export class Handlers {
  @OnWebhookEvent('order.creatd') // wrong
  misspelt(): void {}

  @OnWebhookEvent('order.created') // wrong
  strange(order: { stranger: boolean }): void {}

  @OnWebhookEvent('nothing.*') // wrong
  unmatched(): void {}

  @OnWebhookEvent('order.created')
  right(order: { id: string }): void {}
}

export async function publish(): Promise<void> {
  await publisher.publish('order.created', { id: 1 }); // wrong
  await publisher.publish('order.creatd', { id: '1' }); // wrong
  await publisher.publish('order.created', { id: '1' });
}
