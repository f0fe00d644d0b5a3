import { randomUUID } from 'node:crypto';
import { Body, Controller, Post } from '@nestjs/common';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { CreateInvoiceDto } from './create-invoice.dto.js';

@Controller('invoices')
export class InvoicesController {
  constructor(private readonly webhooks: WebhookPublisher) {}

  /** When the client gets the answer, the event is in Redis and survives a crash of this process. */
  @Post()
  async create(@Body() { total }: CreateInvoiceDto): Promise<{ id: string }> {
    const id = randomUUID();
    await this.webhooks.publish('invoice.created', { id, total });
    return { id };
  }
}
