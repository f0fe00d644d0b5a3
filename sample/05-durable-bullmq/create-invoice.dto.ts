import { IsInt, IsPositive } from 'class-validator';

export class CreateInvoiceDto {
  /** In cents. */
  @IsInt()
  @IsPositive()
  readonly total!: number;
}
