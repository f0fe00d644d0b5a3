import { randomUUID } from 'node:crypto';
import { Injectable, ServiceUnavailableException } from '@nestjs/common';
import { OnWebhookEvent, type WebhookEventData, WebhookPublisher } from 'nestjs-webhook-token';

@Injectable()
export class OrderWebhooks {
  /** Whether it accepts orders. */
  isOpen = true;
  /** Ids of the orders that were shipped. */
  readonly shipped: string[] = [];

  constructor(private readonly webhooks: WebhookPublisher) {}

  @OnWebhookEvent('order.created')
  async onCreated({ id }: WebhookEventData<'order.created'>): Promise<void> {
    // The shop sends the order again later.
    if (!this.isOpen) throw new ServiceUnavailableException();
    this.shipped.push(id);
    await this.webhooks.publish('parcel.shipped', { orderId: id, tracking: randomUUID() });
  }
}
