import { randomBytes } from 'node:crypto';
import { afterAll, describe, expect, it } from '@jest/globals';
import { HttpService } from '@nestjs/axios';
import { Test } from '@nestjs/testing';
import { Queue } from 'bullmq';
import { flushDeliveries, InMemoryWebhookTransport, TestClock } from 'nestjs-webhook-token/testing';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import {
  InProcessQueue,
  WebhookDeliveries,
  WebhookEndpoints,
  WebhookModule,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { BullMqQueue } from 'nestjs-webhook-token/bullmq';
import { PostgresQueue, PgliteQueue } from '../../lib/postgres/index.js';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';
import { newDatabaseDirectory, removeDirectories } from './embedded-database.js';

const name = `flush-${randomBytes(6).toString('hex')}`;
const cleanUps: (() => Promise<unknown>)[] = [removeDirectories];
afterAll(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

function onRedis(): Queue {
  const queue = new Queue(name, { connection: { url: urlOf('Redis') } });
  cleanUps.push(() => queue.obliterate({ force: true }).then(() => queue.close()));
  return queue;
}

const engines: [
  engine: string,
  suite: typeof describe.skip,
  create: (clock: TestClock) => WebhookQueue | Promise<WebhookQueue>,
][] = [
  ['the queue in memory', describe, (clock) => new InProcessQueue({ clock })],
  [
    'PGlite',
    describe,
    async (clock) => new PgliteQueue({ directory: await newDatabaseDirectory(), clock }),
  ],
  [
    'postgres',
    await describeWith('PostgreSQL'),
    (clock) => {
      const database = new TestDatabase();
      cleanUps.push(() => database.close());
      return new PostgresQueue({ pool: database.pool, schema: database.newSchema(), clock });
    },
  ],
  ['BullMQ', await describeWith('Redis'), (clock) => new BullMqQueue(onRedis(), { clock })],
];

/** An application with the endpoints `crm` and `erp`, on a clock that the test moves. */
async function startApp(create: (clock: TestClock) => WebhookQueue | Promise<WebhookQueue>) {
  const clock = new TestClock(Date.now());
  const transport = new InMemoryWebhookTransport();
  const endpoints = ['crm', 'erp'].map((id) => ({ id, url: `https://${id}.example/hooks` }));
  const testing = await Test.createTestingModule({
    imports: [
      WebhookModule.forRoot({
        clock,
        publisher: {
          issuer: ISSUER,
          secret: SECRET,
          endpoints,
          queue: await create(clock),
          // Longer than any slow machine needs: Redis has its own clock.
          retry: { jitter: 0, attempts: 4, schedule: ['0s', '10m', '20m', '30m'] },
        },
      }),
    ],
  })
    .overrideProvider(HttpService)
    .useValue(transport)
    .compile();
  await testing.init();
  return { clock, transport, testing };
}

/** In the order of endpoints; those of one endpoint in the order they were made. */
function facts(attempts: Awaited<ReturnType<typeof flushDeliveries>>): unknown[] {
  return attempts
    .toSorted((a, b) => (a.endpointId! < b.endpointId! ? -1 : 1))
    .map(({ endpointId, attempt, status }) => [endpointId, attempt, status]);
}

for (const [engine, suite, create] of engines) {
  suite(`flushDeliveries with ${engine}`, () => {
    it('makes the attempts that are due, and all retries by moving the clock', async () => {
      const { clock, transport, testing } = await startApp(create);
      transport.script('https://crm.example', 503, 503, 204);
      transport.script('https://erp.example', 503);
      const publisher = testing.get(WebhookPublisher);
      try {
        await publisher.publish('order.created', { id: 'o1' });
        const first = await flushDeliveries(testing);
        const idle = await flushDeliveries(testing);
        clock.set(clock.now() + 600_000);
        const second = await flushDeliveries(testing);
        const rest = await flushDeliveries(testing, { retries: true });

        expect([facts(first), idle, facts(second), facts(rest)]).toEqual([
          [
            ['crm', 1, 'scheduled'],
            ['erp', 1, 'scheduled'],
          ],
          [],
          [
            ['crm', 2, 'scheduled'],
            ['erp', 2, 'scheduled'],
          ],
          [
            ['crm', 3, 'delivered'],
            ['erp', 3, 'scheduled'],
            ['erp', 4, 'failed'],
          ],
        ]);
      } finally {
        await testing.close();
      }
    });

    it('attempts nothing for a paused endpoint, and everything once it is resumed', async () => {
      const { clock, transport, testing } = await startApp(create);
      transport.script('https://crm.example', 503);
      const publisher = testing.get(WebhookPublisher);
      const endpoints = testing.get(WebhookEndpoints);
      try {
        await publisher.publish('order.created', { id: 'p1' });
        await flushDeliveries(testing);
        await endpoints.pause('crm');
        transport.script('https://crm.example', 204);
        await publisher.publish('order.created', { id: 'p2' });
        const sent = await publisher.send('crm', 'order.created', { id: 'p3' });
        // No attempt is under way when the clock jumps: its lease would expire.
        const due = await flushDeliveries(testing);
        clock.set(clock.now() + 600_000);
        const later = await flushDeliveries(testing, { retries: true });
        const { deliveries } = await testing.get(WebhookDeliveries).list({ status: 'pending' });
        await endpoints.resume('crm');
        const resumed = await flushDeliveries(testing);

        expect(sent).toMatchObject({ status: 'scheduled', attempts: 0 });
        expect(facts([...due, ...later])).toEqual([['erp', 1, 'delivered']]);
        expect(
          deliveries.map((one) => `${one.attemptsMade} ${one.failureReason}`).toSorted(),
        ).toEqual(['0 endpoint_paused', '0 endpoint_paused', '1 endpoint_paused']);
        expect(resumed.map((one) => `${one.attempt} ${one.status}`).toSorted()).toEqual([
          '1 delivered',
          '1 delivered',
          '2 delivered',
        ]);
      } finally {
        await testing.close();
      }
    });
  });
}
