import { afterAll, expect, it } from '@jest/globals';
import { ROUNDS, ledgerRounds } from '../fixtures/ledger-rounds.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

(await describeWith('PostgreSQL'))('a receiver that is killed between effect and answer', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it(
    `has each effect once, over ${ROUNDS} kills`,
    async () => {
      const { lost, doubled } = await ledgerRounds({
        url: urlOf('PostgreSQL'),
        schema: database.newSchema(),
        engine: 'none',
        place: '',
      });

      expect(lost).toEqual([]);
      expect(doubled).toEqual([]);
    },
    300_000 + ROUNDS * 60_000,
  );
});
