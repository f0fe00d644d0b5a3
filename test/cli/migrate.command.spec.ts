import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from '@jest/globals';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { runCommandLine } from '../../lib/cli/command-line.js';
import type { SchemaReport } from '../../lib/cli/status.command.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from '../postgres/database.js';
import { due } from '../postgres/deliveries.js';
import { StandInServer } from '../postgres/stand-in-server.js';
import { Sink } from './conformance-run.js';

const ROOT = join(import.meta.dirname, '../..');
const MAIN = join(ROOT, 'dist/cli/main.js');

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function commandLine(
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<Ended> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const code = await runCommandLine(args, { stdin: Readable.from([]), stdout, stderr, env });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

(await describeWith('PostgreSQL'))('The commands on a database', () => {
  const DATABASE_URL = urlOf('PostgreSQL');
  const database = new TestDatabase();
  const { pool } = database;
  const roles: string[] = [];
  afterAll(async () => {
    for (const role of roles) await pool.query(`DROP ROLE ${role}`);
    await database.close();
  });

  async function on(schema: string, ...args: readonly string[]): Promise<Ended> {
    return commandLine([...args, '--schema', schema], { DATABASE_URL });
  }

  async function reportOf(schema: string): Promise<SchemaReport> {
    return JSON.parse((await on(schema, 'status', '--json')).stdout) as SchemaReport;
  }

  it('create all tables once', async () => {
    const schema = database.newSchema();
    const first = await on(schema, 'migrate');
    const status = await on(schema, 'status');
    const second = await on(schema, 'migrate');

    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(first.stdout).toMatch(
      /^applied 1 replay\napplied 2 endpoint\napplied 3 delivery\napplied 4 queue\napplied 5 inbox\napplied 6 activity\nThe schema test_\w+ is up to date\.\n$/,
    );
    expect(status.code).toBe(0);
    expect(status.stdout).toMatch(/^ {4}3 {2}delivery {2}applied \d{4}-\d\d-\d\dT/m);
    expect(status.stdout).toMatch(/The schema is up to date\.\n$/);
    expect(second).toMatchObject({ code: 0, stdout: `The schema ${schema} is up to date.\n` });
  });

  it('report as JSON what migrate applied', async () => {
    const schema = database.newSchema();
    const report = async (): Promise<unknown> =>
      JSON.parse((await on(schema, 'migrate', '--json')).stdout);

    expect(await report()).toEqual({
      schema,
      applied: ['replay', 'endpoint', 'delivery', 'queue', 'inbox', 'activity'].map(
        (name, index) => ({
          version: index + 1,
          name,
        }),
      ),
    });
    expect(await report()).toMatchObject({ applied: [] });
  });

  it('leave nothing for a queue to migrate', async () => {
    const schema = database.newSchema();
    await on(schema, 'migrate');
    const queue = new PostgresQueue({ pool, schema, migrate: false });

    expect(await queue.enqueue([due('x')])).toEqual([undefined]);
    await queue.stop(0);
  });

  it('can run ten times at once', async () => {
    const schema = database.newSchema();
    const ended = await Promise.all(Array.from({ length: 10 }, async () => on(schema, 'migrate')));

    expect(ended.map(({ code, stderr }) => [code, stderr])).toEqual(
      Array.from({ length: 10 }, () => [0, '']),
    );
  });

  it('list pending migrations and exit with 1', async () => {
    const schema = database.newSchema();
    const { code, stdout } = await on(schema, 'status');

    expect(code).toBe(1);
    expect(stdout).toMatch(/^ {4}1 {2}replay {4}pending$/m);
    expect(stdout).toMatch(/nestjs-webhook-token migrate\.\n$/);
    expect(await reportOf(schema)).toEqual({
      schema,
      state: 'behind',
      latest: 6,
      steps: [
        { version: 1, name: 'replay' },
        { version: 2, name: 'endpoint' },
        { version: 3, name: 'delivery' },
        { version: 4, name: 'queue' },
        { version: 5, name: 'inbox' },
        { version: 6, name: 'activity' },
      ],
    });
  });

  it('accept what a newer version has added', async () => {
    const schema = database.newSchema();
    await on(schema, 'migrate');
    await pool.query(`INSERT INTO ${schema}.migration (version, name) VALUES (7, 'later')`);
    const migrated = await on(schema, 'migrate');
    const status = await on(schema, 'status');

    expect([migrated.code, status.code]).toEqual([0, 0]);
    expect(status.stdout).toMatch(/^ {4}7 {2}later +applied /m);
  });

  it('refuse a schema that a newer version has changed, and change nothing', async () => {
    const schema = database.newSchema();
    await on(schema, 'migrate');
    await pool.query(
      `INSERT INTO ${schema}.migration (version, name, breaking) VALUES (7, 'changed', true)`,
    );
    const migrated = await on(schema, 'migrate');
    const status = await on(schema, 'status');
    const opened = await on(schema, 'console');

    expect([opened.code, opened.stderr]).toEqual([2, expect.stringMatching(/at version 7/)]);
    expect(migrated).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(
        /at version 7, but this version of the package only knows 6.*\n$/,
      ),
    });
    expect([status.code, status.stdout]).toEqual([1, expect.stringMatching(/does not work with/)]);
  });

  it('print a script that creates the same tables', async () => {
    const schema = database.newSchema();
    const { stdout } = await commandLine(['sql', '--schema', schema]);
    await pool.query(stdout);

    expect(await reportOf(schema)).toMatchObject({ state: 'current' });
  });

  it('report a missing privilege in one line', async () => {
    const schema = database.newSchema();
    const role = database.newSchema();
    await pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'not-to-be-shown'`);
    roles.push(role);
    const url = new URL(DATABASE_URL);
    url.username = role;
    url.password = 'not-to-be-shown';
    const ended = await commandLine(['migrate', '--schema', schema, '--database-url', url.href]);

    expect(ended).toEqual({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(
        new RegExp(`^The user lacks .* CREATE SCHEMA IF NOT EXISTS ${schema} AUTHORIZATION .*\\n$`),
      ),
    });
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });

  it.each([
    ['table', (name: string) => `CREATE TABLE ${name} (version integer, name text)`],
    ['view', (name: string) => `CREATE VIEW ${name} AS SELECT 1 AS version`],
  ])('refuse a schema whose %s "migration" is of another program', async (_, create) => {
    const schema = database.newSchema();
    await pool.query(`CREATE SCHEMA ${schema}; ${create(`${schema}.migration`)}`);
    const ended = [await on(schema, 'migrate'), await on(schema, 'status')];

    expect(ended).toEqual(
      Array.from({ length: 2 }, () => ({
        code: 2,
        stdout: '',
        stderr: `The schema ${schema} has a table "migration" that is not of this library: use another schema.\n`,
      })),
    );
  });

  it('report a missing database in one line', async () => {
    const url = new URL(DATABASE_URL);
    url.pathname = `/${database.newSchema()}`;
    const ended = await commandLine(['status', '--database-url', url.href]);

    expect(ended).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^.*the database does not exist; .* Check DATABASE_URL.*\n$/),
    });
  });

  describe('as processes', () => {
    async function spawned(main: string, ...args: readonly string[]): Promise<Ended> {
      const env = { ...process.env, DATABASE_URL };
      const run = promisify(execFile)(process.execPath, [main, ...args], { env });
      return run.then(
        ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
        (error: Ended) => ({ code: error.code, stdout: error.stdout, stderr: error.stderr }),
      );
    }

    it('migrate, and report the state by their exit code', async () => {
      const schema = database.newSchema();
      const before = await spawned(MAIN, 'status', '--schema', schema);
      const migrated = await spawned(MAIN, 'migrate', '--schema', schema);
      const after = await spawned(MAIN, 'status', '--schema', schema);

      expect([before.code, migrated.code, after.code]).toEqual([1, 0, 0]);
      expect(migrated.stdout).toContain('applied 3 delivery\n');
      expect([before.stderr, migrated.stderr, after.stderr]).toEqual(['', '', '']);
    });

    it('say how to install pg if it is missing', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'webhook-cli-'));
      await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
      await writeFile(join(folder, 'package.json'), '{"type":"module","version":"0.0.0"}');
      const ended = await spawned(join(folder, 'dist/cli/main.js'), 'migrate');
      await rm(folder, { recursive: true });

      expect([ended.code, ended.stdout]).toEqual([2, '']);
      expect(ended.stderr).toMatch(/^The package pg is not installed: npm install pg\n/);
    });
  });
});

describe('a database command without its database', () => {
  it.each<[string, string | undefined, RegExp]>([
    [
      'refuses the password',
      '28P01',
      /PostgreSQL at 127\.0\.0\.1:\d+: it refuses the credentials; .*Check DATABASE_URL or --database-url\./,
    ],
    ['does not answer', undefined, /PostgreSQL at 127\.0\.0\.1:\d+: it did not answer in time; /],
    [
      'fails with an unknown code',
      'XX999',
      /PostgreSQL at 127\.0\.0\.1:\d+: the query failed with code XX999; /,
    ],
  ])('that %s is reported in one line, without the password', async (_, sqlState, message) => {
    const server = await StandInServer.start(sqlState);
    const timeout = sqlState === undefined ? '200ms' : '30s';
    const ended = await commandLine(['migrate', '--timeout', timeout], {
      DATABASE_URL: server.url,
    });
    await server.stop();

    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
    expect(ended.stderr.trim().split('\n')).toHaveLength(1);
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });

  it.each([
    [
      'the connection is refused',
      'postgresql://a:not-to-be-shown@127.0.0.1:1/b',
      /at 127\.0\.0\.1:1: the connection was refused/,
    ],
    [
      'the host is unknown',
      'postgresql://a:not-to-be-shown@nowhere.invalid/b',
      /at nowhere\.invalid:5432: the host name/,
    ],
  ])('if %s, it is reported in one line, without the password', async (_, url, message) => {
    const ended = await commandLine(['status', '--database-url', url]);

    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
    expect(ended.stderr).toMatch(/^.*Check DATABASE_URL or --database-url\.\n$/);
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });
});

describe('a database command with --env-file', () => {
  it.each(['migrate', 'status', 'console'])('reads the database from it: %s', async (name) => {
    const folder = await mkdtemp(join(tmpdir(), 'webhook-env-'));
    const file = join(folder, '.env');
    await writeFile(file, 'DATABASE_URL=postgresql://a:not-to-be-shown@127.0.0.1:1/b\n');

    const ended = await commandLine([name, '--env-file', file]);
    await rm(folder, { recursive: true });

    expect(ended).toMatchObject({ code: 2, stdout: '' });
    expect(ended.stderr).toMatch(/at 127\.0\.0\.1:1: the connection was refused/);
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });
});

describe('a database command with invalid options', () => {
  const SECRET_URL = 'mysql://a:not-to-be-shown@127.0.0.1/b';

  it.each<[string, string[], RegExp]>([
    ['no URL', ['migrate'], /set DATABASE_URL/],
    ['a URL with another scheme', ['migrate', '--database-url', SECRET_URL], /postgresql:\/\/user/],
    ['an invalid URL', ['status', '--database-url', 'not-to-be-shown'], /postgresql:\/\/user/],
    ['a URL as a positional argument', ['status', SECRET_URL], /without an option/],
    ['an unknown option', ['status', '--databse', 'x'], /--databse/],
    ['a URL as an option', ['status', '--postgres://a:not-to-be-shown@b/c'], /unknown/],
    ['a schema that would have to be quoted', ['sql', '--schema', 'a b'], /--schema must be/],
    [
      'a timeout that is not a duration',
      ['migrate', '--database-url', 'postgresql://a/b', '--timeout', 'x'],
      /--timeout/,
    ],
    [
      'a timeout that a timer cannot measure',
      ['migrate', '--database-url', 'postgresql://a/b', '--timeout', '25d'],
      /at most 24d/,
    ],
    ['a version that is not a number', ['sql', '--from', 'one'], /--from must be a version number/],
    ['a version that does not exist yet', ['sql', '--from', '99'], /--from is newer/],
  ])('refuses %s without quoting it', async (_, args, message) => {
    const ended = await commandLine(args);

    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
    expect(ended.stderr).toContain(`nestjs-webhook-token ${args[0]} --help`);
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });

  it.each(['migrate', 'status', 'sql'])('has help: %s', async (name) => {
    const { code, stdout } = await commandLine([name, '--help']);

    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining(`Usage: nestjs-webhook-token ${name}`),
    ]);
    expect(stdout).toContain('--schema');
  });
});

describe('the command sql', () => {
  it('prints only the migrations after a version', async () => {
    const { stdout } = await commandLine(['sql', '--from', '2', '--schema', 'hooks']);

    expect(stdout).toMatch(/^-- 3 delivery\n/);
    expect(stdout).toContain(
      `INSERT INTO hooks.migration (version, name, breaking) VALUES (5, 'inbox', false);`,
    );
  });

  it('prints the same script as JSON, by step', async () => {
    const plain = await commandLine(['sql', '--schema', 'hooks']);
    const { stdout } = await commandLine(['sql', '--schema', 'hooks', '--json']);
    const { schema, steps } = JSON.parse(stdout) as {
      schema: string;
      steps: { version: number; name: string; sql: string }[];
    };

    expect(schema).toBe('hooks');
    expect(steps.map(({ version, name }) => [version, name])).toContainEqual([3, 'delivery']);
    expect(steps.map(({ sql }) => sql).join('')).toBe(plain.stdout);
  });
});
