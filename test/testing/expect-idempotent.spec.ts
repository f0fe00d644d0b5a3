import type { PGlite } from '@electric-sql/pglite';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import {
  type CanActivate,
  Controller,
  type INestApplication,
  Injectable,
  Module,
  NotFoundException,
  type Type,
  UseGuards,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from 'nestjs-webhook-token/ports';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookData,
  type WebhookEvent,
  WebhookModule,
  WebhookRoute,
  WebhookVerifier,
  type WebhookReceiverOptions,
} from 'nestjs-webhook-token';
import { expectIdempotent, IdempotencyError } from '../../lib/testing/index.js';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';
import { newPglite } from '../postgres/embedded-database.js';

interface Order {
  readonly id: string;
  readonly total: number;
  readonly status: string;
  readonly version: number;
}

const CREATED: Order = { id: 'o1', total: 5, status: 'created', version: 1 };
const PAID: Order = { ...CREATED, status: 'paid', version: 2 };
const SHIPPED: Order = { ...CREATED, status: 'shipped', version: 3 };

let db: PGlite;
let store: PostgresReplayStore;
beforeAll(async () => {
  db = await newPglite();
  store = new PostgresReplayStore(db);
  await store.migrate();
  await db.exec(`
    CREATE TABLE orders (id text PRIMARY KEY, total int, status text, version int);
    CREATE TABLE notes (note text);
    CREATE TABLE handled (event_id text PRIMARY KEY);
    CREATE TABLE balance (total int);
    INSERT INTO balance VALUES (0);
  `);
});
afterAll(() => db.close());

/** Effects outside of the database. */
const effects: { charges: string[]; byKey: Map<string, unknown>; count: number } = {
  charges: [],
  byKey: new Map(),
  count: 0,
};
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function observe(): Promise<unknown> {
  const rows = async (sql: string): Promise<unknown> => (await db.query(sql)).rows;
  return {
    orders: await rows('SELECT * FROM orders ORDER BY id'),
    notes: await rows('SELECT * FROM notes'),
    balance: await rows('SELECT total FROM balance'),
    charges: effects.charges,
    keys: [...effects.byKey],
    count: effects.count,
  };
}

async function reset(): Promise<void> {
  await db.exec('DELETE FROM orders; DELETE FROM notes; UPDATE balance SET total = 0');
  effects.charges = [];
  effects.byKey.clear();
  effects.count = 0;
}

let app: INestApplication | undefined;
afterEach(async () => {
  await app?.close();
  app = undefined;
  await reset();
});

async function check(
  Handler: Type,
  more: Partial<Parameters<typeof expectIdempotent>[3]> & {
    event?: string;
    receiver_?: Partial<WebhookReceiverOptions>;
  } = {},
): Promise<void> {
  const { event = 'order.created', receiver_, ...options } = more;
  const isController = Reflect.hasMetadata('path', Handler);
  class App {}
  Module({
    imports: [
      WebhookModule.forRoot({
        receiver: {
          path: 'webhooks',
          issuers: [{ issuer: ISSUER, secret: SECRET }],
          replay: { store },
          ...receiver_,
        },
      }),
    ],
    providers: isController ? [] : [Handler],
    controllers: isController ? [Handler] : [],
  })(App);
  app = await NestFactory.create(App, { logger: false });
  await expectIdempotent(app, event, CREATED, {
    issuer: ISSUER,
    secret: SECRET,
    observe,
    ...options,
  });
}

const UPSERT = `INSERT INTO orders VALUES ($1, $2, $3, $4)
  ON CONFLICT (id) DO UPDATE SET total = excluded.total, status = excluded.status, version = excluded.version`;
const columns = ({ id, total, status, version }: Order): unknown[] => [id, total, status, version];

@Injectable()
class AddsToBalance {
  @OnWebhookEvent('order.created')
  async on({ total }: Order): Promise<void> {
    await db.query('UPDATE balance SET total = total + $1', [total]);
  }
}

@Injectable()
class Charges {
  @OnWebhookEvent('order.created')
  async on({ id }: Order): Promise<void> {
    await turn();
    effects.charges.push(id);
  }
}

@Injectable()
class InsertsWithoutCare {
  @OnWebhookEvent('order.created')
  async on(_: Order, { id }: WebhookEvent): Promise<void> {
    await db.query('INSERT INTO handled VALUES ($1)', [id]);
  }
}

@Injectable()
class RemembersInMemory {
  private readonly seen = new Set<string>();

  @OnWebhookEvent('order.created')
  async on(_: Order, { id }: WebhookEvent): Promise<void> {
    if (this.seen.has(id)) return;
    await turn();
    effects.count++;
    this.seen.add(id);
  }
}

@Injectable()
class LooksBeforeItInserts {
  @OnWebhookEvent('order.created')
  async on({ id }: Order): Promise<void> {
    const { rows } = await db.query('SELECT 1 FROM notes WHERE note = $1', [id]);
    if (rows.length === 0) await db.query('INSERT INTO notes VALUES ($1)', [id]);
  }
}

@Injectable()
class LastArrivalWins {
  @OnWebhookEvent('order.*')
  async on(order: Order): Promise<void> {
    await db.query(UPSERT, columns(order));
  }
}

@Injectable()
class CountingGuard implements CanActivate {
  canActivate(): boolean {
    effects.count++;
    return true;
  }
}

@UseGuards(CountingGuard)
@Controller()
class CountsRequests {
  @WebhookRoute('hooks')
  on(@WebhookData() { id }: Order): void {
    effects.byKey.set(id, true);
  }
}

/** Two requests at once both find nothing. */
class GetThenSetStore extends ReplayStore {
  override readonly scope = 'process';
  private readonly done = new Set<string>();

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    await turn();
    if (this.done.has(claim.key)) return { status: 'done' };
    return { status: 'reserved', reservation: { claim, owner: 'any' } };
  }
  override async extend(): Promise<boolean> {
    return true;
  }
  override async commit({ claim }: ReplayReservation): Promise<boolean> {
    this.done.add(claim.key);
    return true;
  }
  override async release({ claim }: ReplayReservation): Promise<boolean> {
    return this.done.delete(claim.key);
  }
}

const neighbours = [
  { event: 'order.paid', data: PAID },
  { event: 'order.shipped', data: SHIPPED },
];

describe('expectIdempotent finds', () => {
  it.each<[string, Type, IdempotencyError['scenario'], Parameters<typeof check>[1]?]>([
    ['a balance that is changed beside the record', AddsToBalance, 'crash-before-record'],
    ['a charge without an idempotency key', Charges, 'crash-before-record'],
    ['a handler that fails for a copy', InsertsWithoutCare, 'crash-before-record'],
    ['a check of the handler that two concurrent runs pass', RemembersInMemory, 'lease-expired'],
    ['an insert that two concurrent runs make', LooksBeforeItInserts, 'lease-expired', { reset }],
    ['a late event that overwrites newer data', LastArrivalWins, 'reordered', { neighbours }],
    [
      'an effect before the replay check',
      CountsRequests,
      'repeated',
      { path: 'hooks', receiver_: { path: undefined } },
    ],
    [
      'a replay store that is not atomic',
      Charges,
      'concurrent',
      { receiver_: { replay: { store: new GetThenSetStore() } } },
    ],
  ])('%s', async (...[, Handler, scenario, more = {}]) => {
    const error: unknown = await check(Handler, more).catch((found: unknown) => found);

    expect(error).toBeInstanceOf(IdempotencyError);
    expect(error).toMatchObject({ name: 'IdempotencyError', scenario });
  });

  it('reports the first difference and its cause', async () => {
    await expect(check(AddsToBalance)).rejects.toMatchObject({
      scenario: 'crash-before-record',
      expected: expect.objectContaining({ balance: [{ total: 25 }] }),
      actual: expect.objectContaining({ balance: [{ total: 30 }] }),
      interleaving: [
        'order.created is delivered',
        'the process crashes after the effect, before the event is recorded as handled',
        'the sender repeats the event',
      ],
      message: expect.stringMatching(
        /^Not idempotent \(crash-before-record\): state\.balance\[0\]\.total is 30 instead of 25\n {2}1\. order\.created/,
      ),
    });
  });

  it('reports every failing scenario', async () => {
    const error: unknown = await check(Charges, { reset }).catch((found: unknown) => found);

    expect(error).toMatchObject({
      scenario: 'crash-before-record',
      failures: [
        { scenario: 'crash-before-record', difference: expect.stringContaining('charges') },
        { scenario: 'lease-expired', expected: { charges: ['o1'] } },
        { scenario: 'lease-expired', actual: { charges: ['o1', 'o1'] } },
      ],
      message: expect.stringMatching(/^Not idempotent \(crash-before-record\): .*\n.*/),
    });
    expect((error as Error).message.match(/^(?:Not idempotent )?\([a-z-]+\): /gm)).toEqual([
      'Not idempotent (crash-before-record): ',
      '(lease-expired): ',
      '(lease-expired): ',
    ]);
  });

  it('reports what failed before a clean delivery is refused, and why it is', async () => {
    @Injectable()
    class FailsLater {
      private runs = 0;

      @OnWebhookEvent('order.created')
      on({ id }: Order): void {
        effects.charges.push(id);
        this.runs++;
        if (this.runs > 6) throw new Error('no database');
      }
    }

    await expect(check(FailsLater)).rejects.toMatchObject({
      name: 'IdempotencyError',
      failures: [{ scenario: 'crash-before-record' }],
      cause: { message: expect.stringContaining('refused with 500 (handler_failed)') },
    });
  });

  it('names the order of the events', async () => {
    await expect(check(LastArrivalWins, { neighbours })).rejects.toMatchObject({
      message: expect.stringContaining('status is "paid" instead of "shipped"'),
      interleaving: [
        'event 1 of 3, order.created, arrives',
        'event 3 of 3, order.shipped, arrives',
        'event 2 of 3, order.paid, arrives',
      ],
    });
  });
});

@Injectable()
class Upserts {
  @OnWebhookEvent('order.created')
  async on(order: Order): Promise<void> {
    await db.query(UPSERT, columns(order));
  }
}

@Injectable()
class CommitsTheRecord {
  @OnWebhookEvent('order.created')
  async on({ total }: Order, event: WebhookEvent): Promise<void> {
    await db.transaction(async (tx) => {
      await tx.query('UPDATE balance SET total = total + $1', [total]);
      await event.commit(tx);
    });
  }
}

@Injectable()
class HasUniqueEventIds {
  @OnWebhookEvent('order.created')
  async on({ total }: Order, { id }: WebhookEvent): Promise<void> {
    await db.transaction(async (tx) => {
      const claim = 'INSERT INTO handled VALUES ($1) ON CONFLICT DO NOTHING RETURNING event_id';
      if ((await tx.query(claim, [id])).rows.length === 0) return;
      await tx.query('UPDATE balance SET total = total + $1', [total]);
    });
  }
}

@Injectable()
class ComparesVersions {
  @OnWebhookEvent('order.*')
  async on(order: Order): Promise<void> {
    await db.query(`${UPSERT} WHERE orders.version < excluded.version`, columns(order));
  }
}

@Injectable()
class ChargesWithKey {
  @OnWebhookEvent('order.created')
  async on({ id, total }: Order): Promise<void> {
    await turn();
    effects.byKey.set(id, total);
  }
}

@Injectable()
class WaitsForItsPredecessor {
  @OnWebhookEvent('order.created')
  async onCreated(order: Order): Promise<void> {
    await db.query(
      'INSERT INTO orders VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING',
      columns(order),
    );
  }

  @OnWebhookEvent('order.paid')
  async onPaid({ id }: Order): Promise<void> {
    const sql = "UPDATE orders SET status = 'paid' WHERE id = $1";
    const { affectedRows } = await db.query(sql, [id]);
    if (affectedRows === 0) throw new NotFoundException();
  }
}

describe.each([
  ['and restores the state', reset],
  ['and lets the state accumulate', undefined],
])('expectIdempotent accepts %s', (_, resetting) => {
  it.each<[string, Type, Parameters<typeof check>[1]?]>([
    ['an upsert', Upserts],
    ['an effect with event.commit(tx)', CommitsTheRecord],
    ['a unique constraint on the event id', HasUniqueEventIds],
    ['an update that compares versions', ComparesVersions, { neighbours }],
    ['a call with an idempotency key', ChargesWithKey],
    [
      'an event that is refused until its predecessor has arrived',
      WaitsForItsPredecessor,
      { neighbours: [{ event: 'order.paid', data: PAID }] },
    ],
    [
      'a receiver that acknowledges first',
      CommitsTheRecord,
      {
        receiver_: { acknowledge: 'queued', queue: new InProcessQueue(), retry: { attempts: 1 } },
      },
    ],
  ])('%s', async (...[, Handler, more = {}]) => {
    await check(Handler, { ...more, reset: resetting });
  });
});

class Balance {
  readonly #total: number;
  constructor(total: number) {
    this.#total = total;
  }
  get total(): number {
    return this.#total;
  }
}

describe('expectIdempotent', () => {
  it('compares plain objects without members, and values with a JSON form', async () => {
    const empty: unknown = Object.create(null);
    const observed = () => [{}, empty, new Date(0), Buffer.alloc(0), new Uint8Array(0), Object(1)];

    await check(Upserts, { observe: observed });
  });

  it('runs two checks of a receiver one after the other', async () => {
    const first = check(Upserts, { reset });
    const isStarted = (): boolean => app !== undefined;
    while (!isStarted()) await turn();
    const sender = { issuer: ISSUER, secret: SECRET };
    const second = expectIdempotent(app!, 'order.created', CREATED, { ...sender, observe, reset });

    expect(await Promise.allSettled([first, second])).toMatchObject([
      { status: 'fulfilled' },
      { status: 'fulfilled' },
    ]);
    expect(app!.get(WebhookVerifier).receiver().replayStore).toBe(store);
  });

  it('reports an event that is refused, with the cause', async () => {
    @Injectable()
    class Fails {
      @OnWebhookEvent('order.created')
      on(): void {
        throw new Error('no database');
      }
    }

    await expect(check(Fails)).rejects.toMatchObject({
      message: expect.stringContaining('order.created was refused with 500 (handler_failed)'),
      cause: { message: 'no database' },
    });
  });

  it('refuses an event, and a neighbour, that no handler takes', async () => {
    await expect(check(ComparesVersions, { event: 'oder.created' })).rejects.toThrow(
      'expectIdempotent: no handler takes "oder.created", so nothing is tested; correct its name, or add a handler',
    );
    await app?.close();
    await expect(
      check(Upserts, { neighbours: [{ event: 'order.piad', data: PAID }] }),
    ).rejects.toThrow('no handler takes "order.piad"');
  });

  it.each<[string, () => unknown, string]>([
    ['undefined', () => void effects.count, 'observe returned undefined; return the state'],
    ['a function', () => effects.byKey.get, 'observe returned a function; return the state'],
    ['a Map', () => effects.byKey, 'observe returned a Map, which JSON cannot hold; convert it'],
    [
      'a Set in a list',
      () => ({ rows: [{ keys: new Set(effects.charges) }] }),
      'observe returned a Set (keys), which JSON cannot hold; convert it',
    ],
    ['a promise', () => ({ rows: observe() }), 'observe returned a Promise (rows)'],
    ['a BigInt', () => ({ count: BigInt(effects.count) }), 'observe returned a BigInt (count)'],
    [
      'the values of a Map',
      () => effects.byKey.values(),
      'observe returned an iterator, which JSON cannot hold; convert it to a list, such as [...map.values()]',
    ],
    [
      'a generator',
      function* () {
        yield effects.count;
      },
      'observe returned an iterator',
    ],
    ['an Error', () => new Error(String(effects.count)), 'observe returned an Error'],
    ['NaN', () => ({ mean: NaN }), 'observe returned NaN or an infinite number (mean)'],
    ['a WeakMap', () => new WeakMap(), 'observe returned an object without enumerable members'],
    [
      'an ArrayBuffer',
      () => [new ArrayBuffer(effects.count)],
      'observe returned an object without enumerable members (0)',
    ],
    [
      'a class instance with private fields',
      () => new Balance(effects.count),
      'observe returned an object without enumerable members',
    ],
  ])('refuses %s as the state', async (_, observed, message) => {
    await expect(check(Upserts, { observe: observed })).rejects.toThrow(
      `expectIdempotent: ${message}`,
    );
  });

  it('leaves the replay store of the application as it was', async () => {
    await check(Charges).catch(() => {});

    expect(app!.get(WebhookVerifier).receiver().replayStore).toBe(store);
  });
});
