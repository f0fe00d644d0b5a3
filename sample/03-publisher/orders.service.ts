import { randomUUID } from 'node:crypto';
import { Injectable, NotFoundException } from '@nestjs/common';
import { WebhookPublisher } from 'nestjs-webhook-token';
import type { CreateOrderDto } from './create-order.dto.js';
import type { Order, OrderStatus } from './order.js';

@Injectable()
export class OrdersService {
  private readonly orders = new Map<string, Order>();

  constructor(private readonly webhooks: WebhookPublisher) {}

  async create({ customer, total }: CreateOrderDto): Promise<Order> {
    const order: Order = { id: randomUUID(), customer, total, status: 'new' };
    this.orders.set(order.id, order);
    // Resolves when the event is recorded, so a slow receiver does not delay the order.
    await this.webhooks.publish('order.created', { id: order.id, customer, total });
    return order;
  }

  async update(id: string, status: OrderStatus): Promise<Order> {
    const order = { ...this.find(id), status };
    this.orders.set(id, order);
    await this.webhooks.publish('order.updated', { id, status });
    return order;
  }

  find(id: string): Order {
    const order = this.orders.get(id);
    if (order === undefined) throw new NotFoundException(`Unknown order ${id}`);
    return order;
  }
}
