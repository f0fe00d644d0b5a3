import { Module, type DynamicModule } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { WebhookModule } from 'nestjs-webhook-token';
import { RedisReplayStore } from 'nestjs-webhook-token/redis';
import { ParcelWebhooks } from './parcel-webhooks.js';
import { REPLICA_NAME } from './replica-name.js';

/** One replica of the receiver. The replicas share nothing but Redis. */
@Module({})
export class AppModule {
  static forReplica(name: string, redis: Redis): DynamicModule {
    return {
      module: AppModule,
      imports: [
        WebhookModule.forRoot({
          receiver: {
            path: 'webhooks',
            issuers: [{ issuer: process.env.SHOP_ISSUER!, secret: process.env.SHOP_SECRET! }],
            replay: { store: new RedisReplayStore(redis, { prefix: 'sample-06' }) },
          },
        }),
      ],
      providers: [ParcelWebhooks, { provide: REPLICA_NAME, useValue: name }],
    };
  }
}
