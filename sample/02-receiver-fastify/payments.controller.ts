import { Controller, Logger } from '@nestjs/common';
import { WebhookContext, WebhookData, WebhookRoute, WebhookEvent } from 'nestjs-webhook-token';
import { Payment } from './payment.schema.js';

@Controller('payments')
export class PaymentsController {
  private readonly logger = new Logger(PaymentsController.name);

  /** A normal route for HEAD and POST; only verified events reach the method. */
  @WebhookRoute('webhooks', { receiver: 'payments' })
  receive(
    @WebhookData({ schema: Payment }) payment: Payment,
    @WebhookContext() event: WebhookEvent<'payment.*'>,
  ): void {
    const { id, amount, paidAt } = payment;
    this.logger.log(`${event.event}: ${id}, ${amount} cents at ${paidAt.toISOString()}`);
  }
}
