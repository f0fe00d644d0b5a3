import { Injectable, Logger } from '@nestjs/common';
import { OnWebhookEvent, WebhookContext, WebhookData, WebhookEvent } from 'nestjs-webhook-token';

/** One class for all of them: guards, pipes, transactions and tests are the same for each. */
@Injectable()
export class PartnerWebhooks {
  private readonly logger = new Logger(PartnerWebhooks.name);

  @OnWebhookEvent('user.created', { receiver: 'clerk' })
  onUser(@WebhookData('id') id: string): void {
    this.logger.log(`Clerk has a new user, ${id}`);
  }

  @OnWebhookEvent('invoice.*', { receiver: 'stripe' })
  onInvoice(
    @WebhookData() { type, data }: { type: string; data: { object: { id: string } } },
  ): void {
    this.logger.log(`Stripe sends ${type} of ${data.object.id}`);
  }

  @OnWebhookEvent('issues.opened', { receiver: 'github' })
  onIssue(@WebhookData('issue') issue: { title: string }): void {
    this.logger.log(`GitHub has a new issue, "${issue.title}"`);
  }

  @OnWebhookEvent('app_mention', { receiver: 'slack' })
  onMention(@WebhookData('event') mention: { text: string }): void {
    this.logger.log(`Slack mentions the app: "${mention.text}"`);
  }

  @OnWebhookEvent('report.due', { receiver: 'qstash' })
  onReport(@WebhookContext() event: WebhookEvent): void {
    this.logger.log(`QStash wants a report, message ${event.id}`);
  }

  /** Okta signs nothing: `event.bodyVerified` is `false`. */
  @OnWebhookEvent('user.**', { receiver: 'okta' })
  onSecurity(@WebhookContext() event: WebhookEvent): void {
    this.logger.log(`Okta reports ${event.event}, signed: ${event.bodyVerified}`);
  }
}
