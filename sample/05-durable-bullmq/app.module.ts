import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import { BullBoardModule, type BullBoardModuleOptions } from '@bull-board/nestjs';
import { BullModule, getQueueToken } from '@nestjs/bullmq';
import { Module } from '@nestjs/common';
import type { Queue } from 'bullmq';
import { WebhookModule } from 'nestjs-webhook-token';
import { BullMqQueue } from 'nestjs-webhook-token/bullmq';
import { InvoiceWebhooks } from './invoice-webhooks.js';
import { InvoicesController } from './invoices.controller.js';
import { REDIS_URL } from './redis-connection.js';

// The packages of bull-board are released separately, so their types can differ slightly.
const adapter = ExpressAdapter as unknown as BullBoardModuleOptions['adapter'];

/** A queue for deliveries only; each application needs its own. */
const QUEUE = process.env.QUEUE_NAME ?? 'invoice-webhooks';

const deliveries = BullModule.registerQueue({
  name: QUEUE,
  // Without an offline queue, `publish` fails immediately while Redis is unreachable.
  connection: { url: REDIS_URL, enableOfflineQueue: false },
});

@Module({
  imports: [
    deliveries,
    // A dashboard of all deliveries. In a real application, protect it with a login.
    BullBoardModule.forRoot({ route: '/queues', adapter }),
    BullBoardModule.forFeature({ name: QUEUE, adapter: BullMQAdapter }),
    WebhookModule.forRootAsync({
      imports: [deliveries],
      inject: [getQueueToken(QUEUE)],
      useFactory: (queue: Queue) => ({
        publisher: {
          issuer: process.env.SHOP_ISSUER!,
          secret: process.env.SHOP_SECRET!,
          endpoints: [{ id: 'crm', url: process.env.CRM_URL!, events: ['invoice.*'] }],
          queue: new BullMqQueue(queue, { lease: '5s' }),
          // Short for the sample; the default retries for three days.
          retry: { schedule: ['0s', '1s', '2s', '5s'] },
          // Only for a receiver on this machine.
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
        },
      }),
    }),
  ],
  controllers: [InvoicesController],
  providers: [InvoiceWebhooks],
})
export class AppModule {}
