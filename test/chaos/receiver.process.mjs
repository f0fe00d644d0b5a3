// A replica of the receiver, which the test kills. Prints its port.
import 'reflect-metadata';
import { setTimeout } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { OnWebhookEvent, WebhookModule } from '../../dist/index.js';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';
import { chanceOf } from './chance.mjs';
import { Effects } from './effects.mjs';
import { openReplayStore } from './replay-stores.mjs';

const { adapter, seed, failures, replay, database, redis, issuer, secret } = settings;
const ADAPTERS = {
  express: async () => new (await import('@nestjs/platform-express')).ExpressAdapter(),
  fastify: async () => new (await import('@nestjs/platform-fastify')).FastifyAdapter(),
};

const effects = new Effects(database);
const { store, record } = await openReplayStore(replay, effects, {
  redis,
  schema: database.schema,
});

/** The application's handler; the first run of some events fails. */
class ChaosHandler {
  failed = new Set();

  async onEvent(_data, event) {
    // Long enough for a kill to interrupt some runs, before and after their effect.
    await setTimeout(5);
    if (chanceOf(seed, 'handler', event.id) < failures && !this.failed.has(event.id)) {
      this.failed.add(event.id);
      throw new Error('This run fails.');
    }
    await record(event);
    await setTimeout(5);
  }
}
const { prototype } = ChaosHandler;
OnWebhookEvent('chaos.*')(
  prototype,
  'onEvent',
  Object.getOwnPropertyDescriptor(prototype, 'onEvent'),
);

// A lease that a busy machine cannot lose: whether a run was interrupted is decided by the kills.
const LEASE = '10s';

class ReceiverModule {}
Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        issuers: [{ issuer, secret }],
        replay: { store, lease: LEASE },
      },
    }),
  ],
  providers: [ChaosHandler],
})(ReceiverModule);

const app = await NestFactory.create(ReceiverModule, await ADAPTERS[adapter](), { logger: false });
await app.listen(0, '127.0.0.1');
onCommand();
report('listening', app.getHttpServer().address().port);
