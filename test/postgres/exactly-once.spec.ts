import { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import type { PoolClient } from 'pg';
import { PostgresReplayStore } from '../../lib/postgres/index.js';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
import type { WebhookEvent } from '../../lib/receiver/webhook-event.js';
import { adapters } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { send, type Answer } from '../fixtures/http-client.js';

import { ROUNDS, ledgerRounds } from '../fixtures/ledger-rounds.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

/** What becomes of the first run of an event; those that follow commit. */
type Fate = 'commits' | 'rolls back' | 'commits, then fails' | 'leaves it open';

@Injectable()
class Ledger {
  /** Of a handler that has failed without waiting for its transaction. */
  open: { readonly client: PoolClient; end(how: 'COMMIT' | 'ROLLBACK'): Promise<void> } | undefined;
  /** Where a handler waits before its commit. */
  gate: Gate | undefined;
  database!: TestDatabase;
  table!: string;
  private readonly seen = new Set<string>();

  @OnWebhookEvent('ledger.entered')
  async on({ fate }: { fate: Fate }, event: WebhookEvent): Promise<void> {
    const isFirst = !this.seen.has(event.id);
    this.seen.add(event.id);
    const client = await this.database.pool.connect();
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${this.table} VALUES ($1)`, [event.id]);
    await event.commit(client);
    await this.gate?.pass();
    const end = async (how: 'COMMIT' | 'ROLLBACK'): Promise<void> => {
      await client.query(how);
      client.release();
    };
    if (isFirst && fate === 'leaves it open') {
      this.open = { client, end };
      throw new Error('did not wait for its transaction');
    }
    await end(isFirst && fate === 'rolls back' ? 'ROLLBACK' : 'COMMIT');
    if (isFirst && fate !== 'commits') throw new Error(fate);
  }
}

const describePostgres = await describeWith('PostgreSQL');

describePostgres.each(adapters)('an effect in the transaction of its record, on %s', (_, make) => {
  const database = new TestDatabase();
  let receiver: StartedApp;
  let ledger: Ledger;
  beforeAll(async () => {
    const schema = database.newSchema();
    const store = new PostgresReplayStore(database.pool, { schema, timeout: '500ms' });
    await store.migrate();
    await database.pool.query(`CREATE TABLE ${schema}.entries (event text NOT NULL)`);
    receiver = await startApp(make(), {
      options: receiverOptions({ replay: { store } }),
      providers: [Ledger],
    });
    ledger = receiver.app.get(Ledger);
    Object.assign(ledger, { database, table: `${schema}.entries` });
  });
  afterAll(async () => {
    await receiver.app.close();
    await database.close();
  });

  function event(fate: Fate): { id: string; sendIt: () => Promise<Answer> } {
    const id = crypto.randomUUID();
    const token = (): string => signed({ event: 'ledger.entered', id, data: { fate } });
    return { id, sendIt: async () => send(receiver.origin, { method: 'HEAD', token: token() }) };
  }

  async function effects(id: string): Promise<number> {
    const { rows } = await database.pool.query(`SELECT FROM ${ledger.table} WHERE event = $1`, [
      id,
    ]);
    return rows.length;
  }

  it.each<[Fate, number]>([
    ['commits', 204],
    ['rolls back', 500],
    ['commits, then fails', 500],
  ])('happens once where the handler %s', async (fate, status) => {
    const { id, sendIt } = event(fate);
    const answers = [await sendIt(), await sendIt(), await sendIt()];

    expect(answers.map((answer) => answer.status)).toEqual([status, 204, 204]);
    expect(await effects(id)).toBe(1);
  });

  it.each<['COMMIT' | 'ROLLBACK', boolean]>([
    ['COMMIT', true],
    ['ROLLBACK', false],
  ])('happens once where the handler fails before its %s', async (how, isDuplicate) => {
    const { id, sendIt } = event('leaves it open');
    const first = await sendIt();
    // The release waits for the transaction, whatever becomes of whom it was for.
    await ledger.open!.end(how);
    let second = await sendIt();
    while (second.status !== 204) second = await sendIt();

    expect(first.status).toBe(500);
    expect(second.headers['webhook-duplicate']).toBe(isDuplicate ? 'true' : undefined);
    expect(await effects(id)).toBe(1);
  });

  it('answers a copy that arrives before the transaction ends, in time', async () => {
    const { id, sendIt } = event('commits');
    ledger.gate = new Gate();
    const first = sendIt();
    await ledger.gate.reached;
    const copy = await sendIt();
    ledger.gate.open();
    ledger.gate = undefined;

    expect(copy.status).toBe(503);
    expect(copy.headers['retry-after']).toBe('5');
    expect((await first).status).toBe(204);
    expect((await sendIt()).headers['webhook-duplicate']).toBe('true');
    expect(await effects(id)).toBe(1);
  });
});

describe.each(adapters)('an effect on PGlite, on %s', (_, make) => {
  let database: PGlite;
  beforeAll(async () => (database = await PGlite.create()), 60_000);
  afterAll(async () => database.close());

  it('is committed with the record of its event', async () => {
    @Injectable()
    class Embedded {
      private runs = 0;

      @OnWebhookEvent('ledger.entered')
      async on(_data: unknown, event: WebhookEvent): Promise<void> {
        await database.transaction(async (tx) => {
          await tx.query('INSERT INTO entries VALUES ($1)', [event.id]);
          await event.commit(tx);
          if (this.runs++ === 0) throw new Error('rolled back');
        });
      }
    }
    const store = new PostgresReplayStore(database, { timeout: '30s' });
    await store.migrate();
    await database.exec('CREATE TABLE entries (event text NOT NULL)');
    const receiver = await startApp(make(), {
      options: receiverOptions({ replay: { store } }),
      providers: [Embedded],
    });
    const token = signed({ event: 'ledger.entered' });
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await send(receiver.origin, { token })).status);
    await receiver.app.close();

    expect(statuses).toEqual([500, 204, 204]);
    expect((await database.query('SELECT * FROM entries')).rows).toHaveLength(1);
  }, 60_000);
});

describePostgres('a receiver that is killed between effect and answer', () => {
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
    30_000 + ROUNDS * 10_000,
  );
});
