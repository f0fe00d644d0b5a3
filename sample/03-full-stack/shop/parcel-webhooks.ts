import { Injectable } from '@nestjs/common';
import { OnWebhookEvent, type WebhookEventData } from 'nestjs-webhook-token';
import { OrdersService } from './orders.service.js';

@Injectable()
export class ParcelWebhooks {
  constructor(private readonly orders: OrdersService) {}

  @OnWebhookEvent('parcel.shipped')
  onShipped({ orderId }: WebhookEventData<'parcel.shipped'>): void {
    this.orders.ship(orderId);
  }
}
