import { randomBytes } from 'node:crypto';
import { afterAll, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import { killRounds, ROUNDS } from '../fixtures/kill-rounds.js';
import { describeWith, urlOf } from '../fixtures/services.js';

(await describeWith('Redis'))('a publisher on BullMQ that is killed', () => {
  const name = `webhooks-${randomBytes(6).toString('hex')}`;
  afterAll(async () => {
    const queue = new Queue(name, { connection: { url: urlOf('Redis') } });
    await queue.obliterate({ force: true });
    await queue.close();
  });

  it(
    `loses nothing it has acknowledged, over ${ROUNDS} kills`,
    async () => {
      const { acknowledged, lost } = await killRounds('bullmq', urlOf('Redis'), name);

      expect(acknowledged).toBeGreaterThan(ROUNDS * 20);
      expect(lost).toEqual([]);
    },
    30_000 + ROUNDS * 5_000,
  );
});
