import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';

import { ROUNDS, ledgerRounds } from '../fixtures/ledger-rounds.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

const url = urlOf('PostgreSQL');

(await describeWith('PostgreSQL'))('a receiver with a queue on PostgreSQL that is killed', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it(
    `handles each acknowledged event once, over ${ROUNDS} kills`,
    async () => {
      const schema = database.newSchema();
      const { lost, doubled } = await ledgerRounds({ url, schema, engine: 'server', place: '' });

      expect(lost).toEqual([]);
      expect(doubled).toEqual([]);
    },
    300_000 + ROUNDS * 60_000,
  );
});

describe('a receiver with a queue on PGlite that is killed', () => {
  let place: string;
  afterAll(async () => rm(place, { recursive: true, force: true }));

  it(
    `handles each acknowledged event once, over ${ROUNDS} kills`,
    async () => {
      place = await mkdtemp(join(tmpdir(), 'webhooks-'));
      const { lost, doubled } = await ledgerRounds({ url, schema: '', engine: 'embedded', place });

      expect(lost).toEqual([]);
      expect(doubled).toEqual([]);
    },
    300_000 + ROUNDS * 60_000,
  );
});
