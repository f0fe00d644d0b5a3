import { Injectable } from '@nestjs/common';
import { IsInt, IsString } from 'class-validator';
import { OnWebhookEvent } from 'nestjs-webhook-token';

export class OrderCreated {
  @IsString() id!: string;
  @IsInt() total!: number;
}

@Injectable()
export class OrderWebhooks {
  readonly created: OrderCreated[] = [];

  @OnWebhookEvent('order.created')
  onCreated(order: OrderCreated): void {
    this.created.push(order);
  }
}
