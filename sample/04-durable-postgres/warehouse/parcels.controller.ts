import { Controller, Get, Inject } from '@nestjs/common';
import { DATABASE } from '../storage.constants.js';
import type { Database } from '../storage.js';
import { parcels } from './parcels.table.js';

@Controller('parcels')
export class ParcelsController {
  constructor(@Inject(DATABASE) private readonly database: Database) {}

  @Get()
  async list(): Promise<{ readonly orderId: string; readonly customer: string }[]> {
    return this.database.select().from(parcels);
  }
}
