import { Body, Controller, Get, Post, Query } from '@nestjs/common';
import type { OrderCreated } from '../events.js';
import { CreateOrderDto } from './create-order.dto.js';
import { OrdersService } from './orders.service.js';

@Controller('orders')
export class OrdersController {
  constructor(private readonly orders: OrdersService) {}

  /** With `?fail=1`, the payment fails after `publish`, and the transaction is rolled back. */
  @Post()
  async create(@Body() order: CreateOrderDto, @Query('fail') fail?: string): Promise<OrderCreated> {
    return this.orders.create(order, fail === undefined);
  }

  @Get()
  async list(): Promise<OrderCreated[]> {
    return this.orders.list();
  }
}
