import { IsIn } from 'class-validator';
import { ORDER_STATUSES, type OrderStatus } from './order.js';

export class UpdateOrderDto {
  @IsIn(ORDER_STATUSES)
  readonly status!: OrderStatus;
}
