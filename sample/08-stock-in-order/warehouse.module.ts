import { Module, type DynamicModule } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import type { PgliteQueue } from 'nestjs-webhook-token/postgres';
import { Warehouse } from './warehouse.js';

/** Publishes stock levels, and stores them in an embedded database until the shop has them. */
@Module({})
export class WarehouseModule {
  /** @param shop - URL of the shop's webhooks */
  static register(queue: PgliteQueue, shop: string): DynamicModule {
    return {
      module: WarehouseModule,
      imports: [
        WebhookModule.forRoot({
          publisher: {
            issuer: process.env.WAREHOUSE_ISSUER!,
            secret: process.env.WAREHOUSE_SECRET!,
            // A level that cannot be delivered holds those after it, until an operator redelivers or skips it.
            endpoints: [{ id: 'shop', url: shop, events: ['stock.*'], onDead: 'block' }],
            queue,
            // Short for the sample; the default covers outages of days.
            retry: { attempts: 100, schedule: ['0s', '100ms'] },
            // Only for a receiver on this machine.
            allowHttp: true,
            allowedAddresses: ['127.0.0.1'],
          },
        }),
      ],
      providers: [Warehouse],
    };
  }
}
