import { Injectable, Logger } from '@nestjs/common';
import { OnWebhookEvent, WebhookContext, WebhookData, WebhookEvent } from 'nestjs-webhook-token';
import type { InvoiceCreated } from './events.js';
import { OrderCreatedDto } from './order-created.dto.js';

@Injectable()
export class OrderWebhooks {
  private readonly logger = new Logger(OrderWebhooks.name);

  /** The data is validated against the DTO first; invalid data is answered with 422. */
  @OnWebhookEvent('order.created')
  onCreated(order: OrderCreatedDto, event: WebhookEvent<'order.created'>): void {
    this.logger.log(`Order ${order.id} of ${order.total} cents, reported by ${event.issuer}`);
  }

  /** The sender gets 204 when the promise resolves; if it rejects, the sender retries. */
  @OnWebhookEvent('order.updated')
  async onUpdated(
    @WebhookData('id') id: string,
    @WebhookContext() event: WebhookEvent<'order.updated'>,
  ): Promise<void> {
    this.logger.log(`Order ${id} is ${event.data.status}`);
  }

  /** Sent by sample 05. */
  @OnWebhookEvent('invoice.created')
  onInvoice(@WebhookData() { id, total }: InvoiceCreated): void {
    this.logger.log(`Invoice ${id} of ${total} cents`);
  }

  /** Runs in addition to the two order handlers. A repeated event has the same `event.id`. */
  @OnWebhookEvent('order.*')
  onAny(@WebhookContext() event: WebhookEvent<'order.*'>): void {
    this.logger.log(`${event.event} ${event.id} arrived by ${event.method}`);
  }
}
