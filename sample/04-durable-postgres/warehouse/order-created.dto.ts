import { IsInt, IsNotEmpty, IsString } from 'class-validator';
import type { OrderCreated } from '../events.js';

export class OrderCreatedDto implements OrderCreated {
  @IsString()
  @IsNotEmpty()
  readonly id!: string;

  @IsString()
  readonly customer!: string;

  @IsInt()
  readonly total!: number;
}
