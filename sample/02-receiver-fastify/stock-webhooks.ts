import { Injectable, Logger } from '@nestjs/common';
import { OnWebhookEvent, WebhookEvent } from 'nestjs-webhook-token';

@Injectable()
export class StockWebhooks {
  private readonly logger = new Logger(StockWebhooks.name);

  /** `receiver` limits the handler to the warehouse: the bank cannot trigger it. */
  @OnWebhookEvent('stock.exported', { receiver: 'warehouse' })
  onExported(csv: Buffer, event: WebhookEvent<'stock.exported'>): void {
    const [, ...articles] = csv.toString().trimEnd().split('\n');
    this.logger.log(`${articles.length} articles in ${csv.length} bytes of ${event.contentType}`);
  }
}
