import { Inject, Injectable, Logger } from '@nestjs/common';
import { OnWebhookEvent } from 'nestjs-webhook-token';
import { DATABASE } from '../storage.constants.js';
import type { Database } from '../storage.js';
import { OrderCreatedDto } from './order-created.dto.js';
import { parcels } from './parcels.table.js';

@Injectable()
export class OrderWebhooks {
  private readonly logger = new Logger('Warehouse');

  constructor(@Inject(DATABASE) private readonly database: Database) {}

  /**
   * The replay store recognises duplicates. If this process dies between the insert and the store's commit, the event is
   * handled again; the table's primary key makes that harmless.
   */
  @OnWebhookEvent('order.created')
  async onCreated({ id, customer }: OrderCreatedDto): Promise<void> {
    await this.database.insert(parcels).values({ orderId: id, customer }).onConflictDoNothing();
    this.logger.log(`Order ${id} is packed for ${customer}`);
  }
}
