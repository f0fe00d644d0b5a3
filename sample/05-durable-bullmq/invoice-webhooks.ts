import { Injectable, Logger } from '@nestjs/common';
import { OnWebhookDelivery, type WebhookDeliveryEvent } from 'nestjs-webhook-token';

/** Logs delivery outcomes, including those of deliveries that an earlier process recorded. */
@Injectable()
export class InvoiceWebhooks {
  private readonly logger = new Logger(InvoiceWebhooks.name);

  @OnWebhookDelivery('delivered')
  onDelivered({ event, eventId, attempts }: WebhookDeliveryEvent): void {
    this.logger.log(`${event} ${eventId} delivered at attempt ${attempts}`);
  }

  @OnWebhookDelivery('retry-scheduled')
  onRetry({ event, eventId, reason }: WebhookDeliveryEvent): void {
    this.logger.warn(`${event} ${eventId} will be retried: ${reason}`);
  }
}
