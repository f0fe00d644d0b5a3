import { Injectable } from '@nestjs/common';
import { IsInt, IsString } from 'class-validator';
import { OnWebhookEvent, WebhookEvent } from 'nestjs-webhook-token';

export class OrderCreated {
  @IsString() id!: string;
  @IsInt() total!: number;
}

@Injectable()
export class OrderWebhooks {
  @OnWebhookEvent('order.created')
  onCreated(order: OrderCreated, event: WebhookEvent): void {
    console.log(`handled ${event.event} ${order.id} ${order instanceof OrderCreated}`);
  }
}
