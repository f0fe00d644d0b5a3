import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { killRounds, ROUNDS } from '../fixtures/kill-rounds.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

(await describeWith('PostgreSQL'))('a publisher on PostgreSQL that is killed', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it(
    `loses nothing it has acknowledged, over ${ROUNDS} kills`,
    async () => {
      const schema = database.newSchema();
      const { acknowledged, lost } = await killRounds('server', urlOf('PostgreSQL'), schema);

      expect(acknowledged).toBeGreaterThan(ROUNDS * 20);
      expect(lost).toEqual([]);
    },
    60_000 + ROUNDS * 5_000,
  );
});

describe('a publisher on PGlite that is killed', () => {
  let directory: string;
  afterAll(async () => rm(directory, { recursive: true, force: true }));

  it(
    `loses nothing it has acknowledged, over ${ROUNDS} kills`,
    async () => {
      directory = await mkdtemp(join(tmpdir(), 'webhooks-'));
      const { acknowledged, lost } = await killRounds('embedded', directory, '-');

      expect(acknowledged).toBeGreaterThan(ROUNDS * 20);
      expect(lost).toEqual([]);
    },
    90_000 + ROUNDS * 10_000,
  );
});
