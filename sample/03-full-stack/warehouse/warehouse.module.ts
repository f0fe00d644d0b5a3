import { Module, type DynamicModule } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { events } from '../events.js';
import { OrderWebhooks } from './order-webhooks.js';
import { WarehouseController } from './warehouse.controller.js';

@Module({ controllers: [WarehouseController], providers: [OrderWebhooks] })
export class WarehouseModule {
  /** @param shop - URL of the shop's webhooks */
  static register(shop: string): DynamicModule {
    const { SHOP_ISSUER, SHOP_SECRET, WAREHOUSE_ISSUER, WAREHOUSE_SECRET } = process.env;
    return {
      module: WarehouseModule,
      imports: [
        WebhookModule.forRoot({
          events,
          receiver: {
            path: 'webhooks',
            issuers: [{ issuer: SHOP_ISSUER!, secret: SHOP_SECRET! }],
          },
          publisher: {
            issuer: WAREHOUSE_ISSUER!,
            secret: WAREHOUSE_SECRET!,
            endpoints: [{ id: 'shop', url: shop }],
            // Only for a receiver on this machine.
            allowHttp: true,
            allowedAddresses: ['127.0.0.1'],
          },
        }),
      ],
    };
  }
}
