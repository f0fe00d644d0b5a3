import { randomUUID } from 'node:crypto';
import { ConflictException, Inject, Injectable } from '@nestjs/common';
import { WebhookPublisher } from 'nestjs-webhook-token';
import type { OrderCreated } from '../events.js';
import { DATABASE } from '../storage.constants.js';
import type { Database } from '../storage.js';
import type { CreateOrderDto } from './create-order.dto.js';
import { orders } from './orders.table.js';

@Injectable()
export class OrdersService {
  constructor(
    @Inject(DATABASE) private readonly database: Database,
    private readonly webhooks: WebhookPublisher,
  ) {}

  /** Records the order and its event in one transaction. */
  async create({ customer, total }: CreateOrderDto, isPaid: boolean): Promise<OrderCreated> {
    const order: OrderCreated = { id: randomUUID(), customer, total };
    await this.database.transaction(async (tx) => {
      await tx.insert(orders).values(order);
      await this.webhooks.publish('order.created', order, { tx });
      if (!isPaid)
        throw new ConflictException(
          'The payment failed: neither the order nor the event was recorded.',
        );
    });
    return order;
  }

  async list(): Promise<OrderCreated[]> {
    return this.database.select().from(orders);
  }
}
