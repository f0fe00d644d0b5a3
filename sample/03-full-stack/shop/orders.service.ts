import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { WebhookPublisher } from 'nestjs-webhook-token';
import type { CreateOrderDto } from './create-order.dto.js';

export interface Order {
  readonly id: string;
  readonly customer: string;
  /** In cents. */
  readonly total: number;
  readonly status: 'ordered' | 'shipped';
}

@Injectable()
export class OrdersService {
  private readonly orders = new Map<string, Order>();

  constructor(private readonly webhooks: WebhookPublisher) {}

  async create({ customer, total }: CreateOrderDto): Promise<Order> {
    const order: Order = { id: randomUUID(), customer, total, status: 'ordered' };
    this.orders.set(order.id, order);
    // Resolves when the event is recorded, so a closed warehouse does not delay the order.
    await this.webhooks.publish(
      'order.created',
      { id: order.id, customer, total },
      { tenant: 'warehouse' },
    );
    return order;
  }

  ship(id: string): void {
    const order = this.orders.get(id);
    if (order !== undefined) this.orders.set(id, { ...order, status: 'shipped' });
  }

  /** The newest first. */
  list(): Order[] {
    return [...this.orders.values()].toReversed();
  }
}
