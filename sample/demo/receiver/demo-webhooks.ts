import { Injectable } from '@nestjs/common';
import { OnWebhookEvent, WebhookContext, WebhookEvent } from 'nestjs-webhook-token';
import { Logbook } from './logbook.js';

@Injectable()
export class DemoWebhooks {
  constructor(private readonly logbook: Logbook) {}

  @OnWebhookEvent(['order.created', '*.exported', 'photo.*'])
  onDelivered(@WebhookContext() event: WebhookEvent): void {
    this.logbook.enter(event, true);
  }

  /** Fails the first time, so that the publisher retries. */
  @OnWebhookEvent('invoice.paid')
  onPaid(_invoice: unknown, event: WebhookEvent): void {
    const isFirst = this.logbook.runsFor(event.id).length === 0;
    this.logbook.enter(event, !isFirst);
    if (isFirst) throw new Error('the ledger is locked');
  }
}
