import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import type { PoolClient } from 'pg';
import { TestClock } from 'nestjs-webhook-token/testing';
import { OnWebhookEvent, type WebhookEvent } from 'nestjs-webhook-token';
import { PostgresReplayStore } from '../../lib/postgres/index.js';
import { createExpress } from '../fixtures/adapters.js';
import { newPglite } from './embedded-database.js';
import { Gate } from '../fixtures/gate.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, untilLocked } from './database.js';

/** The outcome of the first run of an event; later runs commit. */
type Fate = 'commits' | 'rolls back' | 'commits, then fails' | 'leaves it open';

@Injectable()
class Ledger {
  /** The transaction of a handler that failed without waiting for it. */
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

describePostgres('an effect in the transaction of its record', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  // A statement that waits for a lock times out when the test moves this clock.
  const clock = new TestClock(Date.now());
  let receiver: StartedApp;
  let ledger: Ledger;
  beforeAll(async () => {
    const store = new PostgresReplayStore(database.pool, { schema, timeout: '2s', clock });
    await store.migrate();
    await database.pool.query(`CREATE TABLE ${schema}.entries (event text NOT NULL)`);
    receiver = await startApp(createExpress(), {
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

  /** Resolves with the answer to a request for which a statement of the store waits too long. */
  async function afterTimeout(answer: Promise<Answer>, statement: string): Promise<Answer> {
    await untilLocked(database.pool, statement);
    await clock.advance(2_000);
    return answer;
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
  ])('happens once if the handler %s', async (fate, status) => {
    const { id, sendIt } = event(fate);
    const answers = [await sendIt(), await sendIt(), await sendIt()];

    expect(answers.map((answer) => answer.status)).toEqual([status, 204, 204]);
    expect(await effects(id)).toBe(1);
  });

  it.each<['COMMIT' | 'ROLLBACK', boolean]>([
    ['COMMIT', true],
    ['ROLLBACK', false],
  ])('happens once if the handler fails before its %s', async (how, isDuplicate) => {
    const { id, sendIt } = event('leaves it open');
    // The release waits for the transaction, however the handler ends.
    const first = await afterTimeout(sendIt(), `%DELETE FROM ${schema}.replay WHERE id = $1%`);
    await ledger.open!.end(how);
    let second = await sendIt();
    while (second.status !== 204) second = await sendIt();

    expect(first.status).toBe(500);
    expect(second.headers['webhook-duplicate']).toBe(isDuplicate ? 'true' : undefined);
    expect(await effects(id)).toBe(1);
  });

  it('answers a copy that arrives before the transaction ends', async () => {
    const { id, sendIt } = event('commits');
    ledger.gate = new Gate();
    const first = sendIt();
    await ledger.gate.reached;
    const copy = await afterTimeout(sendIt(), `%INSERT INTO ${schema}.replay%`);
    ledger.gate.open();
    ledger.gate = undefined;

    expect(copy.status).toBe(503);
    expect(copy.headers['retry-after']).toBe('5');
    expect((await first).status).toBe(204);
    expect((await sendIt()).headers['webhook-duplicate']).toBe('true');
    expect(await effects(id)).toBe(1);
  });
});

describe('an effect on PGlite', () => {
  let database: PGlite;
  beforeAll(async () => (database = await newPglite()));
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
    const receiver = await startApp(createExpress(), {
      options: receiverOptions({ replay: { store } }),
      providers: [Embedded],
    });
    const token = signed({ event: 'ledger.entered' });
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await send(receiver.origin, { token })).status);
    await receiver.app.close();

    expect(statuses).toEqual([500, 204, 204]);
    expect((await database.query('SELECT * FROM entries')).rows).toHaveLength(1);
  });
});
