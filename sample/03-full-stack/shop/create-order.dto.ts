import { IsInt, IsNotEmpty, IsPositive, IsString } from 'class-validator';

export class CreateOrderDto {
  @IsString()
  @IsNotEmpty()
  readonly customer!: string;

  @IsInt()
  @IsPositive()
  readonly total!: number;
}
