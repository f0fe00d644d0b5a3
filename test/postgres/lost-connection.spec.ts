import { afterAll, expect, it } from '@jest/globals';
import { Pool } from 'pg';
import { TestClock } from 'nestjs-webhook-token/testing';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { LosingNetwork } from '../fixtures/losing-network.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due } from './deliveries.js';

(await describeWith('PostgreSQL'))('a queue whose connections are lost unnoticed', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('claims and settles deliveries over others', async () => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const clock = new TestClock(Date.now() + 60_000);
    const schema = database.newSchema();
    const connectionString = network.url;
    const queue = new PostgresQueue({ connectionString, schema, notify: false, clock });
    const direct = new PostgresQueue({ pool: database.pool, schema, clock });
    const runs: string[] = [];
    let answer!: () => void;
    const answered = new Promise<void>((resolve) => (answer = resolve));
    const settled = async (id: string): Promise<boolean> =>
      (await direct.find([id]))[0]?.status === 'delivered';
    try {
      await queue.enqueue([due('under way')]);
      await queue.consume(async ({ id }) => {
        runs.push(id);
        if (id === 'under way') await answered;
        return { outcome: { type: 'delivered' } };
      });
      await until(() => runs.length === 1);
      network.loseConnections();
      await direct.enqueue([{ ...due('later'), notBefore: clock.now() }]);
      answer();
      await clock.advance(1_000);
      await until(() => network.swallowed > 0);

      await until(async () => {
        await clock.advance(1_000);
        return (await settled('under way')) && (await settled('later'));
      });
      expect(runs).toEqual(['under way', 'later']);
    } finally {
      await network.stop();
      const stopped = Promise.all([queue.stop(0), direct.stop(0)]);
      await clock.advance(2_000);
      await stopped;
    }
  });

  it('rejects calls in time, delivers over other connections, and destroys the lost ones', async () => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const schema = database.newSchema();
    const pool = new Pool({ connectionString: network.url, max: 3 });
    pool.on('error', () => {});
    const options = { schema, timeout: '300ms', pollInterval: '100ms' } as const;
    const queue = new PostgresQueue({ pool, ...options });
    const delivered = new Set<string>();
    try {
      await queue.consume(async ({ id }) => {
        delivered.add(id);
        return { outcome: { type: 'delivered' } };
      });
      await queue.enqueue([due('before')]);
      await until(() => delivered.has('before'));
      network.loseConnections();
      // As many as the pool has connections, and more.
      const ids = Array.from({ length: 20 }, (_, index) => `during-${index}`);
      const calls = await Promise.allSettled(ids.map(async (id) => queue.enqueue([due(id)])));
      for (const call of calls.filter(({ status }) => status === 'rejected')) {
        expect(call).toMatchObject({
          reason: {
            code: 'store_unavailable',
            message: expect.stringMatching(/did not answer in time/),
          },
        });
      }
      await until(async () =>
        queue.enqueue(ids.map((id) => due(id))).then(
          () => true,
          () => false,
        ),
      );
      await until(() => ids.every((id) => delivered.has(id)));

      expect(network.swallowed).toBeGreaterThan(0);
    } finally {
      await queue.stop(0);
      await network.stop();
      await pool.end();
    }
  });
});
