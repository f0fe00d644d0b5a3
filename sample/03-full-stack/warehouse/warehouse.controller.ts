import { Controller, Get, Header, Post, Redirect } from '@nestjs/common';
import { OrderWebhooks } from './order-webhooks.js';

@Controller()
export class WarehouseController {
  constructor(private readonly orders: OrderWebhooks) {}

  @Get()
  @Header('Content-Type', 'text/html; charset=utf-8')
  page(): string {
    const { isOpen, shipped } = this.orders;
    return `<!doctype html>
<html lang="en">
  <title>Warehouse</title>
  <h1>Warehouse</h1>
  <p>It is ${isOpen ? 'open' : 'closed'}, and has shipped ${shipped.length} orders.</p>
  <form method="post" action="${isOpen ? 'close' : 'open'}">
    <button>${isOpen ? 'Close' : 'Open'}</button>
  </form>
</html>`;
  }

  @Post('open')
  @Redirect('/', 303)
  open(): void {
    this.orders.isOpen = true;
  }

  @Post('close')
  @Redirect('/', 303)
  close(): void {
    this.orders.isOpen = false;
  }
}
