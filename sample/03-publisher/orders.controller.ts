import { Body, Controller, Get, Param, Patch, Post } from '@nestjs/common';
import { CreateOrderDto } from './create-order.dto.js';
import type { Order } from './order.js';
import { OrdersService } from './orders.service.js';
import { UpdateOrderDto } from './update-order.dto.js';

@Controller('orders')
export class OrdersController {
  constructor(private readonly orders: OrdersService) {}

  @Post()
  create(@Body() order: CreateOrderDto): Promise<Order> {
    return this.orders.create(order);
  }

  @Patch(':id')
  update(@Param('id') id: string, @Body() { status }: UpdateOrderDto): Promise<Order> {
    return this.orders.update(id, status);
  }

  @Get(':id')
  find(@Param('id') id: string): Order {
    return this.orders.find(id);
  }
}
