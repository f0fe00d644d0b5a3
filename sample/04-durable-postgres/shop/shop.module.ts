import { Module, type DynamicModule } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { DATABASE } from '../storage.constants.js';
import type { Storage } from '../storage.js';
import { OrdersController } from './orders.controller.js';
import { OrdersService } from './orders.service.js';

@Module({ controllers: [OrdersController], providers: [OrdersService] })
export class ShopModule {
  /** @param warehouse - URL of the warehouse's webhooks */
  static register({ database, queue }: Storage, warehouse: string): DynamicModule {
    return {
      module: ShopModule,
      imports: [
        WebhookModule.forRoot({
          publisher: {
            issuer: process.env.SHOP_ISSUER!,
            secret: process.env.SHOP_SECRET!,
            endpoints: [{ id: 'warehouse', url: warehouse, events: ['order.*'] }],
            queue,
            // Short for the sample; the default covers outages of days.
            retry: { attempts: 100, schedule: ['0s', '1s', '2s', '5s'] },
            // Only for a receiver on this machine.
            allowHttp: true,
            allowedAddresses: ['127.0.0.1'],
          },
        }),
      ],
      providers: [{ provide: DATABASE, useValue: database }],
    };
  }
}
