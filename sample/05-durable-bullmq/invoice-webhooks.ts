import { Injectable, Logger } from '@nestjs/common';
import { OnWebhookDelivery, type WebhookDeliveryEvent } from 'nestjs-webhook-token';

/** Logs the outcome of deliveries, including those of an earlier process. */
@Injectable()
export class InvoiceWebhooks {
  private readonly logger = new Logger(InvoiceWebhooks.name);

  @OnWebhookDelivery('delivered')
  onDelivered({ event, eventId, attempts }: WebhookDeliveryEvent): void {
    this.logger.log(`${event} ${eventId} is delivered, at attempt ${attempts}`);
  }

  @OnWebhookDelivery('retry-scheduled')
  onRetry({ event, eventId, reason }: WebhookDeliveryEvent): void {
    this.logger.warn(`${event} ${eventId} waits for its next attempt: ${reason}`);
  }
}
