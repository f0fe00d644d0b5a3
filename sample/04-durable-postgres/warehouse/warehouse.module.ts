import { Module, type DynamicModule } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import type { PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import { DATABASE } from '../storage.constants.js';
import type { Storage } from '../storage.js';
import { OrderWebhooks } from './order-webhooks.js';
import { ParcelsController } from './parcels.controller.js';

@Module({ controllers: [ParcelsController], providers: [OrderWebhooks] })
export class WarehouseModule {
  static register({ database }: Storage, store: PostgresReplayStore): DynamicModule {
    return {
      module: WarehouseModule,
      imports: [
        WebhookModule.forRoot({
          receiver: {
            path: 'webhooks',
            issuers: [{ issuer: process.env.SHOP_ISSUER!, secret: process.env.SHOP_SECRET! }],
            replay: { store },
          },
        }),
      ],
      providers: [{ provide: DATABASE, useValue: database }],
    };
  }
}
