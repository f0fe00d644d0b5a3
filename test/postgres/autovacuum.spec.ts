import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { startAutovacuum } from '../../lib/postgres/embedded-database.js';
import { newPglite } from './embedded-database.js';

describe('the vacuum of an embedded database', () => {
  let pglite: PGlite;
  beforeAll(async () => (pglite = await newPglite()));
  afterAll(async () => pglite.close());

  async function count(table: string): Promise<{ dead: number; vacuums: number }> {
    const { rows } = await pglite.query<{ dead: number; vacuums: number }>(
      `SELECT n_dead_tup::int AS dead, vacuum_count::int AS vacuums
       FROM pg_stat_user_tables WHERE relname = $1`,
      [table],
    );
    return rows[0]!;
  }

  it('frees the rows that were changed in a table once they are many, and leaves other tables', async () => {
    await pglite.exec(`CREATE TABLE busy (id int); CREATE TABLE quiet (id int);
      INSERT INTO busy SELECT generate_series(1, 2000); INSERT INTO quiet VALUES (1)`);
    await pglite.exec('UPDATE busy SET id = id + 1; UPDATE quiet SET id = 2');
    // Otherwise PostgreSQL counts the changed rows at most once a second.
    await pglite.query('SELECT pg_stat_force_next_flush()');
    const clock = new TestClock();
    const stop = startAutovacuum(async () => pglite, clock);
    for (let round = 0; round < 100 && (await count('busy')).vacuums === 0; round++) {
      await clock.advance(10_000);
    }
    stop();

    expect(await count('busy')).toEqual({ dead: 0, vacuums: 1 });
    expect(await count('quiet')).toEqual({ dead: 1, vacuums: 0 });
    expect(clock.waiting).toBe(0);
  });
});
