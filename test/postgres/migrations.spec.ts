import { afterAll, describe, expect, it } from '@jest/globals';
import { Pool } from 'pg';
import type { StoredEndpoint } from 'nestjs-webhook-token/ports';
import {
  PgliteQueue,
  PostgresInboxStore,
  PostgresQueue,
  PostgresEndpointStore,
  PostgresReplayStore,
} from '../../lib/postgres/index.js';
import { scriptSteps, stepBlock } from '../../lib/postgres/migrations/schema.migrator.js';
import { migrationSteps } from '../../lib/postgres/migrations/migration-steps.js';
import { newDatabaseDirectory, removeDirectories } from './embedded-database.js';
import { newClaim } from '../fixtures/racing-replicas.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { storeIn, TestDatabase, until, untilLocked } from './database.js';
import { due } from './deliveries.js';
import { StandInServer } from './stand-in-server.js';

const ENDPOINT: StoredEndpoint = {
  id: 'crm',
  url: 'https://crm.example/webhooks',
  events: ['**'],
  settings: {},
  keys: [],
  version: 1,
  createdAt: 1_000,
  updatedAt: 1_000,
};

function scriptOf(schema: string, from?: number): string {
  return scriptSteps(schema, from)
    .map(({ sql }) => sql)
    .join('');
}

(await describeWith('PostgreSQL'))('the schema of the stores', () => {
  const database = new TestDatabase();
  const { pool } = database;
  const roles: string[] = [];
  afterAll(async () => {
    for (const role of roles) await pool.query(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
    await database.close();
  });

  async function versions(schema: string): Promise<number[]> {
    const { rows } = await pool.query<{ version: number }>(
      `SELECT version FROM ${schema}.migration ORDER BY version`,
    );
    return rows.map(({ version }) => version);
  }

  /** The columns and indexes of a schema, for a comparison. */
  async function shape(schema: string): Promise<unknown[]> {
    const columns = await pool.query(
      `SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
       FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2`,
      [schema],
    );
    const indexes = await pool.query(
      `SELECT replace(indexdef, $1, '') AS def FROM pg_indexes WHERE schemaname = $1 ORDER BY 1`,
      [schema],
    );
    return [...columns.rows, ...indexes.rows];
  }

  /** A pool of a user without privileges. */
  async function newUser(): Promise<{ role: string; user: Pool }> {
    const role = database.newSchema();
    await pool.query(`CREATE ROLE ${role} LOGIN`);
    roles.push(role);
    const url = new URL(urlOf('PostgreSQL'));
    url.username = role;
    return { role, user: new Pool({ connectionString: url.href, max: 2 }) };
  }

  it('is migrated while another session creates the schema', async () => {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(pool, storeIn(schema));
    const other = await pool.connect();
    try {
      await other.query(`BEGIN; CREATE SCHEMA ${schema}`);
      const migrated = store.migrate();
      await untilLocked(pool, `%CREATE SCHEMA ${schema}%`);
      await other.query('COMMIT');
      await migrated;
    } finally {
      other.release();
    }

    expect(await store.find('crm')).toBeUndefined();
  });

  it('is not created in a database whose encoding cannot hold every character', async () => {
    const name = database.newSchema();
    const format = `ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`;
    await pool.query(`CREATE DATABASE ${name} ${format}`);
    const url = new URL(urlOf('PostgreSQL'));
    url.pathname = name;
    const latin = new Pool({ connectionString: url.href, max: 2 });
    const queue = new PostgresQueue({ pool: latin });
    const failure = {
      code: 'store_unavailable',
      message: expect.stringContaining('has the encoding LATIN1'),
    };
    try {
      await expect(queue.enqueue([due('one')])).rejects.toMatchObject(failure);
      await expect(new PostgresReplayStore(latin).migrate()).rejects.toMatchObject(failure);
    } finally {
      await queue.stop(0);
      await latin.end();
      await pool.query(`DROP DATABASE ${name}`);
    }
  });

  it('is migrated once by ten processes that start at the same time', async () => {
    const schema = database.newSchema();
    const stores = Array.from({ length: 10 }, (_, index) =>
      index % 2 === 0
        ? new PostgresEndpointStore(pool, storeIn(schema))
        : new PostgresInboxStore(pool, storeIn(schema)),
    );
    await Promise.all(stores.map(async (store) => store.migrate()));

    expect(await versions(schema)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it.each(['repeatable read', 'serializable'])(
    'is migrated by several processes at the same time although transactions are %s by default',
    async (isolation) => {
      const schema = database.newSchema();
      const options = `-c default_transaction_isolation=${isolation.replace(' ', '\\ ')}`;
      const strict = new Pool({ connectionString: urlOf('PostgreSQL'), options, max: 4 });
      const stores = Array.from(
        { length: 4 },
        () => new PostgresEndpointStore(strict, storeIn(schema)),
      );
      const results = await Promise.allSettled(stores.map(async (store) => store.migrate()));
      await strict.end();

      expect(results.map(({ status }) => status)).toEqual(Array(4).fill('fulfilled'));
      expect(await versions(schema)).toEqual([1, 2, 3, 4, 5, 6]);
    },
  );

  it('equals the one that the script creates', async () => {
    const [migrated, scripted] = [database.newSchema(), database.newSchema()];
    await new PostgresReplayStore(pool, storeIn(migrated)).migrate();
    await pool.query(scriptOf(scripted));

    expect(await shape(scripted)).toEqual(await shape(migrated));
    expect(await versions(scripted)).toEqual(await versions(migrated));
  });

  it('is migrated from an earlier version by the script of the later steps', async () => {
    const schema = database.newSchema();
    for (const step of migrationSteps(schema).slice(0, 2)) {
      await pool.query(stepBlock(schema, step));
    }
    await pool.query(scriptOf(schema, 2));

    expect(await versions(schema)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it('keeps the rows of an earlier version', async () => {
    const schema = database.newSchema();
    for (const step of migrationSteps(schema).slice(0, 2)) {
      await pool.query(stepBlock(schema, step));
    }
    const store = new PostgresEndpointStore(pool, storeIn(schema));
    await store.insert(ENDPOINT);
    await store.migrate();

    expect(await store.find('crm')).toEqual(ENDPOINT);
    expect(await versions(schema)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it('is unchanged after a step that fails', async () => {
    const schema = database.newSchema();
    const step = {
      version: 1,
      name: 'broken',
      statements: Array.from({ length: 2 }, () => `CREATE TABLE ${schema}.half (id int);`),
    };

    await expect(pool.query(stepBlock(schema, step))).rejects.toThrow(/already exists/);
    const { rows } = await pool.query('SELECT to_regnamespace($1) AS there', [schema]);
    expect(rows).toEqual([{ there: null }]);
  });

  it.each<[string, (schema: string) => Promise<unknown>]>([
    [
      'the endpoint store',
      (schema) => new PostgresEndpointStore(pool, storeIn(schema)).find('crm'),
    ],
    [
      'the endpoint store when it writes',
      (schema) => new PostgresEndpointStore(pool, storeIn(schema)).insert(ENDPOINT),
    ],
    [
      'a queue that must not migrate',
      (schema) => new PostgresQueue({ pool, schema, migrate: false }).enqueue([due('d')]),
    ],
    [
      'the replay store',
      (schema) => new PostgresReplayStore(pool, storeIn(schema)).reserve(newClaim()),
    ],
  ])('that is missing is reported by %s, with the remedy', async (_, use) => {
    await expect(use(database.newSchema())).rejects.toMatchObject({
      code: 'schema_behind',
      message: expect.stringMatching(/npx nestjs-webhook-token migrate/),
    });
  });

  it('that lacks a column is reported as behind', async () => {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(pool, storeIn(schema));
    await store.migrate();
    await pool.query(`ALTER TABLE ${schema}.endpoint DROP COLUMN details`);

    await expect(store.find('crm')).rejects.toMatchObject({ code: 'schema_behind' });
  });

  it('to which a newer version has added something is accepted, and serves this version', async () => {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(pool, storeIn(schema));
    await store.migrate();
    await pool.query(`INSERT INTO ${schema}.migration (version, name) VALUES (7, 'later')`);
    await store.migrate();
    const queue = new PostgresQueue({ pool, schema });

    expect(await queue.enqueue([due('d')])).toEqual([undefined]);
    await queue.stop(0);
    expect(await store.insert(ENDPOINT)).toBe(true);
  });

  it('that a newer version has changed is refused, and unchanged', async () => {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(pool, storeIn(schema));
    await store.migrate();
    await pool.query(
      stepBlock(schema, { version: 7, name: 'changed', statements: [], breaking: true }),
    );
    await pool.query(stepBlock(schema, { version: 8, name: 'later', statements: [] }));
    const message = /at version 7, .* knows 6/;

    const ahead = { code: 'schema_ahead', message: expect.stringMatching(message) };
    await expect(store.migrate()).rejects.toMatchObject(ahead);
    const queue = new PostgresQueue({ pool, schema, migrate: false });
    await expect(queue.find(['d'])).rejects.toMatchObject(ahead);
    await queue.stop(0);
  });

  it('is not created by a user without the privilege, which the error names', async () => {
    const { user } = await newUser();
    const store = new PostgresEndpointStore(user, storeIn(database.newSchema()));
    const refusal = await store.migrate().catch((error: unknown) => error);
    await user.end();

    expect(refusal).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/the user lacks a privilege/),
    });
  });

  it('that is empty is migrated by a user who can create tables in it', async () => {
    const { role, user } = await newUser();
    const schema = database.newSchema();
    await pool.query(`CREATE SCHEMA ${schema} AUTHORIZATION ${role}`);
    await new PostgresEndpointStore(user, storeIn(schema)).migrate();
    await user.end();

    expect(await versions(schema)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it('that is up to date serves a user with read and write privileges only', async () => {
    const { role, user } = await newUser();
    const schema = database.newSchema();
    await new PostgresEndpointStore(pool, storeIn(schema)).migrate();
    await pool.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
    await pool.query(
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`,
    );
    const queue = new PostgresQueue({ pool: user, schema, notify: false });
    await queue.consume(async (_, attempt) => ({
      outcome: { type: 'dead', reason: 'dns', attempts: attempt },
      attempt: { attempt, at: 1, method: 'POST', durationMs: 1 },
    }));
    await queue.enqueue([due('d')]);
    await until(async () => (await queue.find(['d']))[0]?.status === 'dead');
    const replay = new PostgresReplayStore(user, storeIn(schema));
    const verdict = await replay.reserve(newClaim());
    const pruned = await queue.prune(Date.now() + 1_000);
    await queue.stop(0);
    await user.end();

    expect([verdict.status, pruned]).toEqual(['reserved', 1]);
  });

  it('contains no token and no secret', async () => {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(pool, storeIn(schema));
    await store.migrate();
    await store.insert({ ...ENDPOINT, keys: [{ kid: 'a', sealed: 'v1.c2VhbGVk', notBefore: 0 }] });
    const queue = new PostgresQueue({ pool, schema });
    // Members that a caller may add by mistake: they have no column.
    const mistakes = { token: 'eyJhbGciOiJIUzI1NiJ9.e30.x', secret: 'not-to-be-kept' };
    await queue.consume(async (_, attempt) => ({
      outcome: { type: 'delivered' },
      attempt: { attempt, at: 1, method: 'POST', durationMs: 1, ...mistakes },
    }));
    await queue.enqueue([due('d')]);
    await until(async () => (await queue.find(['d']))[0]?.status === 'delivered');
    await queue.stop(0);
    const tables = ['endpoint', 'delivery', 'attempt', 'replay', 'migration'];
    const dumps = tables.map(async (table) => pool.query(`SELECT * FROM ${schema}.${table}`));
    const dump = JSON.stringify((await Promise.all(dumps)).map(({ rows }) => rows));

    expect(dump).toContain('c2VhbGVk');
    expect(dump).not.toMatch(/eyJ|not-to-be-kept/);
  });
});

describe('the embedded database of a queue', () => {
  it('also serves the stores', async () => {
    const directory = await newDatabaseDirectory();
    const queue = new PgliteQueue({ directory, pollInterval: '100ms' });
    const database = async () => queue.database();
    const store = new PostgresEndpointStore(database, { timeout: '120s' });
    await store.migrate();
    await store.insert(ENDPOINT);
    const pglite = await queue.database();
    await pglite.transaction(async (tx) => {
      await queue.enqueue([due('both')], { tx });
    });
    const delivered: string[] = [];
    await queue.consume(async ({ id }) => {
      delivered.push(id);
      return { outcome: { type: 'delivered' } };
    });
    await until(() => delivered.length > 0);

    expect(await store.find('crm')).toEqual(ENDPOINT);
    await queue.stop(Date.now() + 5_000);
    await removeDirectories();
  });
});

describe('a store without its server', () => {
  it.each<[string, string | undefined, RegExp]>([
    [
      'that accepts the connection and does not answer',
      undefined,
      /PostgreSQL at 127\.0\.0\.1:\d+: it did not answer in time/,
    ],
    [
      'that refuses the password',
      '28P01',
      /PostgreSQL at 127\.0\.0\.1:\d+: it refuses the credentials/,
    ],
    ['that is starting up', '57P03', /starting up/],
    ['that cannot parse the name of the schema', '42601', /a reserved word of SQL/],
  ])('%s is unavailable', async (_, sqlState, message) => {
    const server = await StandInServer.start(sqlState);
    const pool = new Pool({ connectionString: server.url });
    const timeout = sqlState === undefined ? '100ms' : '30s';
    const failures = await Promise.all([
      new PostgresEndpointStore(pool, { timeout }).find('a').catch((error: unknown) => error),
      new PostgresInboxStore(pool, { timeout }).find('a').catch((error: unknown) => error),
    ]);
    await server.stop();
    await pool.end();

    const unavailable = { code: 'store_unavailable', message: expect.stringMatching(message) };
    expect(failures).toEqual([
      expect.objectContaining(unavailable),
      expect.objectContaining(unavailable),
    ]);
    expect(JSON.stringify(failures)).not.toContain('not-to-be-shown');
  });
});

describe.each([
  ['PostgresEndpointStore', PostgresEndpointStore],
  ['PostgresInboxStore', PostgresInboxStore],
])('new %s', (name, Store) => {
  const client = { query: async () => ({ rows: [] }) };

  it.each<[string, unknown, object, string]>([
    ['a missing client', undefined, {}, 'client'],
    ['a URL instead of a client', 'postgresql://127.0.0.1/shop', {}, 'client'],
    ['a schema that would have to be quoted', client, { schema: 'a"b' }, 'schema'],
    ['an invalid timeout', client, { timeout: '0s' }, 'timeout'],
  ])('refuses %s', (_, given, options, path) => {
    expect(() => new Store(given as never, options)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [expect.objectContaining({ path: `${name}.${path}` })],
      }),
    );
  });
});
