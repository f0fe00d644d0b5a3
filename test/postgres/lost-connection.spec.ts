import { afterAll, expect, it, jest } from '@jest/globals';
import { Pool } from 'pg';
import {
  PostgresEndpointStore,
  PostgresInboxStore,
  PostgresQueue,
  PostgresReplayStore,
} from '../../lib/postgres/index.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { LosingNetwork } from '../fixtures/losing-network.js';
import { newClaim } from '../fixtures/racing-replicas.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due } from './deliveries.js';

const RECORD_ATTEMPT = /INSERT INTO \S+\.attempt /;

(await describeWith('PostgreSQL'))('a queue whose connections are lost unnoticed', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('claims and settles deliveries over others', async () => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const clock = new TestClock(Date.now() + 60_000);
    const schema = database.newSchema();
    const connectionString = network.url;
    const queue = new PostgresQueue({ connectionString, schema, notify: false, clock });
    const direct = new PostgresQueue({ pool: database.pool, schema, clock });
    const runs: string[] = [];
    let answer!: () => void;
    const answered = new Promise<void>((resolve) => (answer = resolve));
    const settled = async (id: string): Promise<boolean> =>
      (await direct.find([id]))[0]?.status === 'delivered';
    try {
      await queue.enqueue([due('under way')]);
      await queue.consume(async ({ id }) => {
        runs.push(id);
        if (id === 'under way') await answered;
        return { outcome: { type: 'delivered' } };
      });
      await until(() => runs.length === 1);
      network.loseConnections();
      await direct.enqueue([{ ...due('later'), notBefore: clock.now() }]);
      answer();
      await clock.advance(1_000);
      await until(() => network.swallowed > 0);

      await until(async () => {
        await clock.advance(1_000);
        return (await settled('under way')) && (await settled('later'));
      });
      expect(runs).toEqual(['under way', 'later']);
    } finally {
      await network.stop();
      const stopped = Promise.all([queue.stop(0), direct.stop(0)]);
      await clock.advance(2_000);
      await stopped;
    }
  });

  it('records an outcome after an outage that was longer than its lease', async () => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const pool = new Pool({ connectionString: network.url, connectionTimeoutMillis: 300 });
    pool.on('error', () => {});
    const clock = new TestClock(Date.now() + 60_000);
    const options = { schema: database.newSchema(), notify: false, concurrency: 1, clock } as const;
    const queue = new PostgresQueue({ pool, ...options });
    const direct = new PostgresQueue({ pool: database.pool, ...options });
    let runs = 0;
    let answer!: () => void;
    const answered = new Promise<void>((resolve) => (answer = resolve));
    const status = async (): Promise<string | undefined> =>
      (await direct.find(['under way']))[0]?.status;
    try {
      await queue.enqueue([due('under way')]);
      await queue.consume(async () => {
        runs++;
        await answered;
        return { outcome: { type: 'delivered' } };
      });
      await until(() => runs === 1);
      network.vanish();
      answer();
      await until(() => network.swallowed > 0);
      // Two leases.
      for (let seconds = 0; seconds < 60; seconds++) await clock.advance(1_000);
      const before = await status();
      network.recover();
      await until(async () => {
        await clock.advance(1_000);
        return (await status()) === 'delivered';
      });

      expect(before).toBe('pending');
      expect(runs).toBe(1);
    } finally {
      await network.stop();
      const stopped = Promise.all([queue.stop(0), direct.stop(0)]);
      await clock.advance(2_000);
      await stopped;
      await pool.end();
    }
  });

  it('claims what a connection had locked that was lost before its commit', async () => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const pool = new Pool({ connectionString: network.url });
    pool.on('error', () => {});
    const options = { timeout: '300ms', pollInterval: '100ms', notify: false } as const;
    const queue = new PostgresQueue({ pool, schema: database.newSchema(), ...options });
    const runs: string[] = [];
    try {
      await until(async () => isAnswered(queue.enqueue([due('locked')])));
      network.loseConnectionAt('COMMIT');
      await queue.consume(async ({ id }) => {
        runs.push(id);
        return { outcome: { type: 'delivered' } };
      });
      await until(() => runs.length === 1);

      expect(network.swallowed).toBeGreaterThan(0);
    } finally {
      await queue.stop(0);
      await network.stop();
      await pool.end();
    }
  });

  it('survives a connection that is lost in the moment in which the pool hands it over', async () => {
    const pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: 1 });
    const queue = new PostgresQueue({ pool, schema: database.newSchema(), notify: false });
    try {
      await queue.enqueue([due('before')]);
      const connection = await pool.connect();
      const waiting = queue.enqueue([due('handed over')]);
      await until(() => pool.waitingCount > 0);
      connection.release();
      // Without a listener, this would throw, and end a process in which it comes from a socket.
      connection.emit('error', connectionLost());

      await waiting;
      expect(await queue.find(['handed over'])).toMatchObject([{ status: 'pending' }]);
    } finally {
      await queue.stop(0);
      await pool.end();
    }
  });

  it('records an attempt once if the answer to its record is lost', async () => {
    const { pool, seen: records } = losingPool(RECORD_ATTEMPT, 'answer');
    const options = { schema: database.newSchema(), pollInterval: '100ms', notify: false } as const;
    const queue = new PostgresQueue({ pool, ...options });
    try {
      await queue.enqueue([due('recorded')]);
      await queue.consume(async (_, number) => {
        const at = Date.now();
        const attempt = { attempt: number, at, durationMs: 1, method: 'POST' } as const;
        return number === 1
          ? { outcome: { type: 'retry', at: at + 3_600_000, reason: 'http_503' }, attempt }
          : { outcome: { type: 'delivered' }, attempt };
      });
      await until(() => records() === 2);
      await queue.redeliver(['recorded']);
      await until(async () => (await queue.find(['recorded']))[0]?.status === 'delivered');

      const attempts = await queue.attempts('recorded');
      expect(attempts.map(({ attempt }) => attempt)).toEqual([1, 2]);
      // The first one again, and the second.
      expect(records()).toBe(3);
    } finally {
      await queue.stop(0);
      await pool.end();
    }
  });

  it('records a retry in time if the clock is set back while its outcome waits for the database', async () => {
    const clock = new TestClock(Date.now() + 60_000);
    const { pool, seen: writes } = losingPool(RECORD_ATTEMPT, 'statement', () =>
      clock.set(clock.now() - 86_400_000),
    );
    const queue = new PostgresQueue({ pool, schema: database.newSchema(), notify: false, clock });
    const limits = { concurrency: 1 };
    const starts: number[] = [];
    try {
      await queue.enqueue([{ ...due('retried'), limits }]);
      await queue.consume(async () => {
        starts.push(clock.now());
        const at = clock.now() + 2_000;
        return starts.length === 1
          ? { outcome: { type: 'retry', at, reason: 'http_429' }, overloadedUntil: at, limits }
          : { outcome: { type: 'delivered' } };
      });
      await until(() => writes() === 1);
      const setBackTo = clock.now();
      await until(async () => {
        await clock.advance(500);
        return starts.length === 2;
      });

      expect(starts).toHaveLength(2);
      // Not a day later, when the clock is again where it was.
      expect(starts[1]).toBeLessThan(setBackTo + 3_600_000);
    } finally {
      const stopped = queue.stop(0);
      await clock.advance(2_000);
      await stopped;
      await pool.end();
    }
  });

  it('writes an outcome whose connection is lost while it shuts down', async () => {
    const { pool, seen: writes } = losingPool(RECORD_ATTEMPT, 'statement');
    const schema = database.newSchema();
    const clock = new TestClock(Date.now() + 60_000);
    const queue = new PostgresQueue({ pool, schema, notify: false, clock });
    const other = new PostgresQueue({ pool: database.pool, schema, clock });
    try {
      await queue.enqueue([due('delivered')]);
      await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      await until(() => writes() === 1);
      const stopped = queue.stop(clock.now());
      await until(() => writes() === 2);
      await stopped;

      expect(await other.find(['delivered'])).toMatchObject([{ status: 'delivered' }]);
    } finally {
      await queue.stop(0);
      await other.stop(0);
      await pool.end();
    }
  });

  it('joins a transaction although its first statement lost its connection', async () => {
    const { pool } = losingPool(/pg_control_system/, 'statement');
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool, schema, notify: false });
    const other = new PostgresQueue({ pool: database.pool, schema, notify: false });
    const client = await database.pool.connect();
    try {
      await queue.find(['none']).catch(() => {});
      await client.query('BEGIN');
      await other.enqueue([due('one')], { tx: client });
      await queue.enqueue([due('two')], { tx: client });
      await client.query('COMMIT');

      expect(await queue.find(['one', 'two'])).toMatchObject([{}, {}]);
    } finally {
      client.release();
      await queue.stop(0);
      await other.stop(0);
      await pool.end();
    }
  });

  it('works on a server that does not permit the identifier of its data directory', async () => {
    const pool = poolWith(async (statement, run) => {
      if (!/pg_control_system/.test(statement)) return run();
      throw Object.assign(new Error('permission denied'), { code: '42501' });
    });
    const queue = new PostgresQueue({ pool, schema: database.newSchema(), notify: false });
    try {
      await queue.enqueue([due('one')]);
      const client = await pool.connect();
      await client.query('BEGIN');
      await queue.enqueue([due('two')], { tx: client });
      await client.query('COMMIT');
      client.release();

      expect(await queue.find(['one', 'two'])).toMatchObject([{}, {}]);
    } finally {
      await queue.stop(0);
      await pool.end();
    }
  });

  it('rejects calls in time, delivers over other connections, and destroys the lost ones', async () => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const schema = database.newSchema();
    const pool = new Pool({ connectionString: network.url, max: 3 });
    pool.on('error', () => {});
    const options = { schema, timeout: '300ms', pollInterval: '100ms' } as const;
    const queue = new PostgresQueue({ pool, ...options });
    const delivered = new Set<string>();
    try {
      await queue.consume(async ({ id }) => {
        delivered.add(id);
        return { outcome: { type: 'delivered' } };
      });
      await queue.enqueue([due('before')]);
      await until(() => delivered.has('before'));
      network.loseConnections();
      // As many as the pool has connections, and more.
      const ids = Array.from({ length: 20 }, (_, index) => `during-${index}`);
      const calls = await Promise.allSettled(ids.map(async (id) => queue.enqueue([due(id)])));
      for (const call of calls.filter(({ status }) => status === 'rejected')) {
        expect(call).toMatchObject({
          reason: {
            code: 'store_unavailable',
            message: expect.stringMatching(/did not answer in time/),
          },
        });
      }
      await until(async () => isAnswered(queue.enqueue(ids.map((id) => due(id)))));
      await until(() => ids.every((id) => delivered.has(id)));

      expect(network.swallowed).toBeGreaterThan(0);
    } finally {
      await queue.stop(0);
      await network.stop();
      await pool.end();
    }
  });
});

(await describeWith('PostgreSQL'))('a store whose server vanishes', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it.each([
    [
      'PostgresReplayStore',
      PostgresReplayStore,
      async (store: PostgresReplayStore) => store.reserve(newClaim()),
    ],
    [
      'PostgresEndpointStore',
      PostgresEndpointStore,
      async (store: PostgresEndpointStore) => store.find('crm'),
    ],
    ['PostgresInboxStore', PostgresInboxStore, async (store: PostgresInboxStore) => store.counts()],
  ] as const)('%s rejects calls in time, and answers once it is back', async (_, Store, ask) => {
    const network = await LosingNetwork.start(urlOf('PostgreSQL'));
    const schema = database.newSchema();
    // Without the timeout, connections that are never opened would fill the pool.
    const connectionTimeoutMillis = 300;
    const pool = new Pool({ connectionString: network.url, max: 3, connectionTimeoutMillis });
    pool.on('error', () => {});
    const store = new Store(pool, { schema, timeout: '300ms' });
    const call = async (): Promise<unknown> => ask(store as never);
    try {
      await new Store(database.pool, { schema }).migrate();
      await until(async () => isAnswered(call()));
      network.vanish();
      // More than the pool has connections, those included that are opened meanwhile.
      for (let calls = 0; calls < 5; calls++) {
        await expect(call()).rejects.toMatchObject({ code: 'store_unavailable' });
      }
      expect(network.swallowed).toBeGreaterThan(0);

      network.recover();
      await until(async () => isAnswered(call()));
    } finally {
      await network.stop();
      await pool.end();
    }
  });
});

const STORES = [PostgresReplayStore, PostgresEndpointStore, PostgresInboxStore];

it.each(STORES.map((Store) => [Store.name, Store] as const))(
  '%s warns of a pool that would wait forever for a server that has vanished',
  async (name, Store) => {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const pools = [
      {},
      { query_timeout: 1 },
      { connectionTimeoutMillis: 1 },
      { query_timeout: 1, connectionTimeoutMillis: 1 },
    ].map((options) => new Pool(options));
    const stores = pools.map((pool) => new Store(pool));
    const warnings = warn.mock.calls.map(([message]) => String(message));
    warn.mockRestore();
    await Promise.all(pools.map(async (pool) => pool.end()));

    expect(stores).toHaveLength(4);
    expect(warnings).toEqual(
      [
        'query_timeout and no connectionTimeoutMillis',
        'connectionTimeoutMillis',
        'query_timeout',
      ].map((missing) => expect.stringContaining(`The pool of ${name} has no ${missing}: `)),
    );
  },
);

async function isAnswered(call: Promise<unknown>): Promise<boolean> {
  return call.then(
    () => true,
    () => false,
  );
}

function connectionLost(): Error {
  return new Error('Connection terminated unexpectedly');
}

/** A pool whose statements are run by `around`. */
function poolWith(around: (statement: string, run: () => Promise<unknown>) => Promise<unknown>) {
  const pool = new Pool({ connectionString: urlOf('PostgreSQL') });
  pool.on('connect', (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>;
    client.query = (async (...args: unknown[]) =>
      around(String(args[0]), async () => query(...args))) as never;
  });
  return pool;
}

/** A pool whose connection is lost once: before the first of these statements, or before its answer. */
function losingPool(pattern: RegExp, lost: 'statement' | 'answer', onLost = () => {}) {
  let seen = 0;
  const pool = poolWith(async (statement, run) => {
    const isMeant = pattern.test(statement);
    if (isMeant && lost === 'statement' && ++seen === 1) {
      onLost();
      throw connectionLost();
    }
    const answer = await run();
    if (isMeant && lost === 'answer' && ++seen === 1) throw connectionLost();
    return answer;
  });
  return { pool, seen: () => seen };
}
