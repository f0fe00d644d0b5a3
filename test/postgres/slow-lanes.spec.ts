import { afterAll, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { outgoing } from '../fixtures/outgoing.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due } from './deliveries.js';

(await describeWith('PostgreSQL'))('a queue with one slot for two slow endpoints', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('gives it to the one that has due deliveries', async () => {
    // Ahead of the system clock, so that a due delivery is due on both clocks.
    const clock = new TestClock(Date.now() + 60_000);
    const { pool } = database;
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool, schema, concurrency: 5, clock });
    const answers = new Map<string, () => void>();
    await queue.consume(async (delivery, number) => {
      const at = clock.now();
      const isFast = outgoing(delivery).endpointId === 'fast';
      await new Promise<void>((answer) => {
        if (isFast) answer();
        else answers.set(delivery.id, answer);
      });
      const attempt = { attempt: number, at, durationMs: clock.now() - at };
      return { outcome: { type: 'delivered' }, attempt };
    });
    const record = async (id: string, endpointId: string): Promise<unknown> =>
      queue.enqueue([{ ...due(id, endpointId), notBefore: clock.now() }]);
    const delivered = async (id: string): Promise<void> =>
      until(async () => (await queue.find([id]))[0]?.status === 'delivered');
    try {
      for (const endpoint of ['idle', 'due']) {
        await record(`${endpoint}-1`, endpoint);
        await until(() => answers.has(`${endpoint}-1`));
        await clock.advance(2_000);
        answers.get(`${endpoint}-1`)!();
        await delivered(`${endpoint}-1`);
      }
      // While a fast endpoint is in use, slow ones share a fifth of the slots.
      await record('fast-0', 'fast');
      await delivered('fast-0');
      await record('due-2', 'due');
      for (let n = 1; !answers.has('due-2'); n++) {
        await clock.advance(1_000);
        await record(`fast-${n}`, 'fast');
        await delivered(`fast-${n}`);
      }
      answers.get('due-2')!();
      await delivered('due-2');
    } finally {
      await queue.stop(0);
    }

    expect([...answers.keys()]).toEqual(['idle-1', 'due-1', 'due-2']);
  });
});

(await describeWith('PostgreSQL'))(
  'a queue with more due deliveries of one lane than slots',
  () => {
    const database = new TestDatabase();
    afterAll(async () => database.close());

    it('delivers the next one of a key in another lane at once', async () => {
      const clock = new TestClock(Date.now() + 60_000);
      const { pool } = database;
      const queue = new PostgresQueue({
        pool,
        schema: database.newSchema(),
        concurrency: 20,
        clock,
      });
      const answers = new Map<string, () => void>();
      const delivered: string[] = [];
      const answer = async (id: string): Promise<void> =>
        new Promise((resolve) => answers.set(id, resolve));
      await queue.consume(async ({ id }) => {
        if (id === 'first' || id.startsWith('slow')) await answer(id);
        else delivered.push(id);
        return { outcome: { type: 'delivered' } };
      });
      const record = async (
        id: string,
        endpointId: string,
        orderingKey?: string,
      ): Promise<unknown> => {
        const { delivery } = due(id, endpointId);
        return queue.enqueue([{ delivery: { ...delivery, orderingKey }, notBefore: clock.now() }]);
      };
      try {
        for (const id of ['first', 'second', 'third']) await record(id, 'fast', 'key');
        await until(() => answers.has('first'));
        await clock.advance(10_000);
        for (let n = 0; n < 10; n++) await record(`slow-${n}`, 'slow');
        // A lane gets two slots until its first attempt has ended.
        await until(() => answers.size === 3);
        answers.get('first')!();
        await until(() => delivered.length === 2);
      } finally {
        for (const end of answers.values()) end();
        await queue.stop(0);
      }

      expect(delivered).toEqual(['second', 'third']);
    });
  },
);
