import { Body, Controller, Get, Header, Post, Redirect, UseGuards } from '@nestjs/common';
import { WebhookPortal } from 'nestjs-webhook-token/console';
import { AdminGuard } from './admin.guard.js';
import { CreateOrderDto } from './create-order.dto.js';
import { OrdersService, type Order } from './orders.service.js';
import { SHOP_PAGE } from './shop.page.js';

@Controller()
export class OrdersController {
  constructor(
    private readonly orders: OrdersService,
    private readonly portal: WebhookPortal,
  ) {}

  @Get()
  @Header('Content-Type', 'text/html; charset=utf-8')
  page(): string {
    return SHOP_PAGE;
  }

  @Get('orders')
  list(): Order[] {
    return this.orders.list();
  }

  @Post('orders')
  create(@Body() order: CreateOrderDto): Promise<Order> {
    return this.orders.create(order);
  }

  /** Opens the portal as the warehouse sees it; an application would send this link to the partner. */
  @Get('portal')
  @UseGuards(AdminGuard)
  @Redirect()
  link(): { url: string } {
    const { href } = this.portal.link({
      tenant: 'warehouse',
      capabilities: ['view', 'redeliver'],
    });
    return { url: href };
  }
}
