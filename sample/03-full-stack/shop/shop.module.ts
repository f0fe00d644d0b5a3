import { Inject, Module, type DynamicModule, type OnApplicationBootstrap } from '@nestjs/common';
import { isWebhookError, WebhookEndpoints, WebhookModule } from 'nestjs-webhook-token';
import { WebhookConsoleModule } from 'nestjs-webhook-token/console';
import { events } from '../events.js';
import type { Storage } from '../storage.js';
import { AdminGuard } from './admin.guard.js';
import { OrdersController } from './orders.controller.js';
import { OrdersService } from './orders.service.js';
import { ParcelWebhooks } from './parcel-webhooks.js';

const WAREHOUSE = Symbol('URL of the warehouse');

@Module({
  controllers: [OrdersController],
  providers: [OrdersService, ParcelWebhooks],
})
export class ShopModule implements OnApplicationBootstrap {
  constructor(
    private readonly endpoints: WebhookEndpoints,
    @Inject(WAREHOUSE) private readonly warehouse: string,
  ) {}

  static register(storage: Storage, url: string, warehouse: string): DynamicModule {
    const { queue, endpointStore, inboxStore } = storage;
    const { SHOP_ISSUER, SHOP_SECRET, WAREHOUSE_ISSUER, WAREHOUSE_SECRET } = process.env;
    return {
      module: ShopModule,
      imports: [
        WebhookModule.forRoot({
          events,
          publisher: {
            issuer: SHOP_ISSUER!,
            secret: SHOP_SECRET!,
            queue,
            endpointStore,
            sealingKeys: [{ id: 'sample', key: process.env.SEALING_KEY! }],
            // Short for the sample; the default covers outages of days.
            retry: { attempts: 4, schedule: ['0s', '2s', '5s', '10s'] },
            // Only for a receiver on this machine.
            allowHttp: true,
            allowedAddresses: ['127.0.0.1'],
          },
          receiver: {
            path: 'webhooks',
            issuers: [{ issuer: WAREHOUSE_ISSUER!, secret: WAREHOUSE_SECRET! }],
          },
          inbox: { store: inboxStore, headers: true, payload: true },
        }),
        WebhookConsoleModule.forRoot({
          guards: [AdminGuard],
          capabilities: ['view', 'view-payload', 'redeliver', 'manage-endpoints', 'manage-secrets'],
          actor: () => 'admin',
          brand: { name: 'Shop webhooks' },
          portal: { url: `${url}/webhooks/portal`, secret: process.env.PORTAL_SECRET! },
        }),
      ],
      providers: [{ provide: WAREHOUSE, useValue: warehouse }],
    };
  }

  /** Registers the warehouse's endpoint at the first start. */
  async onApplicationBootstrap(): Promise<void> {
    const url = `${this.warehouse}/webhooks`;
    try {
      await this.endpoints.create({
        id: 'warehouse',
        tenant: 'warehouse',
        url,
        events: ['order.*'],
        // Known to both sides of the sample. Without it, the store makes one.
        secret: process.env.SHOP_SECRET!,
      });
    } catch (error) {
      if (!isWebhookError(error, 'endpoint_exists')) throw error;
      await this.endpoints.update('warehouse', { url });
    }
  }
}
