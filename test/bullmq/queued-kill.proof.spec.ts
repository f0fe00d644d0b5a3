import { afterAll, describe, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';

import { ROUNDS, ledgerRounds } from '../fixtures/ledger-rounds.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from '../postgres/database.js';

const [onRedis, onPostgres] = [await describeWith('Redis'), await describeWith('PostgreSQL')];
const describeBoth = onRedis === describe ? onPostgres : onRedis;

describeBoth('a receiver with a queue on BullMQ that is killed', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  const place = urlOf('Redis');
  afterAll(async () => {
    const queue = new Queue(schema, { connection: { url: place } });
    await queue.obliterate({ force: true });
    await queue.close();
    await database.close();
  });

  it(
    `handles each event it has acknowledged once, over ${ROUNDS} kills`,
    async () => {
      const url = urlOf('PostgreSQL');
      const { lost, doubled } = await ledgerRounds({ url, schema, engine: 'bullmq', place });

      expect(lost).toEqual([]);
      expect(doubled).toEqual([]);
    },
    300_000 + ROUNDS * 60_000,
  );
});
