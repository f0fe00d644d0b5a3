import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from '@jest/globals';
import { getRollbackPlans, PgBoss } from 'pg-boss';
import { runCommandLine } from '../../lib/cli/command-line.js';
import type { SchemaReport } from '../../lib/cli/database/schema-report.js';
import { PgBossQueue } from '../../lib/postgres/index.js';
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

  async function reportOf(schema: string, ...more: readonly string[]): Promise<SchemaReport> {
    return JSON.parse((await on(schema, 'status', '--json', ...more)).stdout) as SchemaReport;
  }

  it('make everything, say so, and have nothing to do then', async () => {
    const schema = database.newSchema();
    const first = await on(schema, 'migrate');
    const status = await on(schema, 'status');
    const second = await on(schema, 'migrate');

    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(first.stdout).toMatch(
      /^applied 1 replay\napplied 2 endpoint\napplied 3 delivery\napplied pg-boss \d+\nThe schema test_\w+ is up to date\.\n$/,
    );
    expect(status.code).toBe(0);
    expect(status.stdout).toMatch(/^ {4}3 {2}delivery {2}applied \d{4}-\d\d-\d\dT/m);
    expect(status.stdout).toMatch(/pg-boss +at \d+, and \d+ is installed\nIt is up to date\.\n$/);
    expect(second).toMatchObject({ code: 0, stdout: `The schema ${schema} is up to date.\n` });
  });

  it('leave a queue nothing to migrate', async () => {
    const schema = database.newSchema();
    await on(schema, 'migrate');
    const queue = new PgBossQueue({ pool, schema, migrate: false });

    expect(await queue.enqueue([due('x')])).toEqual([{ id: 'x', status: 'recorded' }]);
    await queue.stop(0);
  });

  it('run ten at once', async () => {
    const schema = database.newSchema();
    const ended = await Promise.all(Array.from({ length: 10 }, async () => on(schema, 'migrate')));

    expect(ended.map(({ code, stderr }) => [code, stderr])).toEqual(
      Array.from({ length: 10 }, () => [0, '']),
    );
  }, 60_000);

  it('leave out the tables of pg-boss where they are told to', async () => {
    const schema = database.newSchema();
    const { stdout } = await on(schema, 'migrate', '--no-queue');

    expect(stdout).not.toContain('pg-boss');
    expect(await reportOf(schema, '--no-queue')).toMatchObject({ state: 'current', queue: null });
    expect(await reportOf(schema)).toMatchObject({
      state: 'behind',
      queue: { state: 'behind', version: null },
    });
  });

  it('say what is pending, and end with 1', async () => {
    const schema = database.newSchema();
    const { code, stdout } = await on(schema, 'status');

    expect(code).toBe(1);
    expect(stdout).toMatch(/^ {4}1 {2}replay {4}pending$/m);
    expect(stdout).toMatch(/nestjs-webhook-token migrate\.\n$/);
    expect(await reportOf(schema)).toMatchObject({
      schema,
      state: 'behind',
      latest: 3,
      steps: [
        { version: 1, name: 'replay', appliedAt: null },
        { version: 2, name: 'endpoint', appliedAt: null },
        { version: 3, name: 'delivery', appliedAt: null },
      ],
    });
  });

  it('bring an older pg-boss up to date', async () => {
    const schema = database.newSchema();
    const boss = await new PgBoss({ connectionString: DATABASE_URL, schema }).start();
    await boss.stop({ graceful: false });
    await pool.query(getRollbackPlans(schema));
    const before = await reportOf(schema);
    const { stderr, code } = await on(schema, 'migrate');

    expect(before.queue).toMatchObject({ state: 'behind' });
    expect([code, stderr]).toEqual([0, '']);
    expect((await reportOf(schema)).queue).toMatchObject({ state: 'current' });
  });

  it('say that the schema is ahead, and change nothing', async () => {
    const schema = database.newSchema();
    await on(schema, 'migrate', '--no-queue');
    await pool.query(`INSERT INTO ${schema}.migration (version, name) VALUES (4, 'later')`);
    const migrated = await on(schema, 'migrate', '--no-queue');
    const status = await on(schema, 'status', '--no-queue');

    expect(migrated).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(/at version 4, and this version of the package knows 3.*\n$/),
    });
    expect([status.code, status.stdout]).toEqual([1, expect.stringMatching(/ahead of this/)]);
  });

  it('print a script that makes the same, the tables of pg-boss too', async () => {
    const schema = database.newSchema();
    const { stdout } = await commandLine(['sql', '--schema', schema]);
    await pool.query(stdout);

    expect(await reportOf(schema)).toMatchObject({ state: 'current', queue: { state: 'current' } });
  });

  it('say in one line that the user may make no schema', async () => {
    const schema = database.newSchema();
    const role = database.newSchema();
    await pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'not-to-be-shown'`);
    roles.push(role);
    const url = new URL(DATABASE_URL);
    url.username = role;
    url.password = 'not-to-be-shown';
    const ended = await commandLine(['migrate', '--schema', schema, '--url', url.href]);

    expect(ended).toEqual({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(
        new RegExp(
          `^The user may not .* CREATE SCHEMA IF NOT EXISTS ${schema} AUTHORIZATION .*\\n$`,
        ),
      ),
    });
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });

  it('say in one line that the database does not exist', async () => {
    const url = new URL(DATABASE_URL);
    url.pathname = `/${database.newSchema()}`;
    const ended = await commandLine(['status', '--url', url.href]);

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

    it('migrate, and tell by their exit code how it stands', async () => {
      const schema = database.newSchema();
      const before = await spawned(MAIN, 'status', '--schema', schema);
      const migrated = await spawned(MAIN, 'migrate', '--schema', schema);
      const after = await spawned(MAIN, 'status', '--schema', schema);

      expect([before.code, migrated.code, after.code]).toEqual([1, 0, 0]);
      expect(migrated.stdout).toContain('applied 3 delivery\n');
      expect([before.stderr, migrated.stderr, after.stderr]).toEqual(['', '', '']);
    }, 60_000);

    it('say that pg is not installed, and how to get it', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'webhook-cli-'));
      await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
      await writeFile(join(folder, 'package.json'), '{"type":"module","version":"0.0.0"}');
      const ended = await spawned(join(folder, 'dist/cli/main.js'), 'migrate');
      await rm(folder, { recursive: true });

      expect([ended.code, ended.stdout]).toEqual([2, '']);
      expect(ended.stderr).toMatch(/^The package pg is not installed here: npm install pg\n/);
    }, 60_000);
  });
});

describe('A database command without its database', () => {
  it.each<[string, string | undefined, RegExp]>([
    [
      'refuses the password',
      '28P01',
      /PostgreSQL at 127\.0\.0\.1:\d+: it refuses the credentials; .*Check DATABASE_URL, or --url\./,
    ],
    ['says nothing', undefined, /PostgreSQL at 127\.0\.0\.1:\d+: it does not answer; /],
    [
      'fails in a way of its own',
      'XX999',
      /PostgreSQL at 127\.0\.0\.1:\d+: the query failed with code XX999; /,
    ],
  ])('that %s says so in one line, without the password', async (_, sqlState, message) => {
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
      'nobody listens',
      'postgresql://a:not-to-be-shown@127.0.0.1:1/b',
      /at 127\.0\.0\.1:1: the connection was refused/,
    ],
    [
      'no host has its name',
      'postgresql://a:not-to-be-shown@nowhere.invalid/b',
      /at nowhere\.invalid:5432: the host name/,
    ],
  ])('where %s says so in one line, without the password', async (_, url, message) => {
    const ended = await commandLine(['status', '--url', url]);

    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
    expect(ended.stderr).toMatch(/^.*Check DATABASE_URL, or --url\.\n$/);
    expect(ended.stderr).not.toContain('not-to-be-shown');
  });
});

describe('A database command with wrong options', () => {
  const SECRET_URL = 'mysql://a:not-to-be-shown@127.0.0.1/b';

  it.each<[string, string[], RegExp]>([
    ['no URL', ['migrate'], /set DATABASE_URL/],
    ['a URL of something else', ['migrate', '--url', SECRET_URL], /postgresql:\/\/user/],
    ['what is no URL', ['status', '--url', 'not-to-be-shown'], /postgresql:\/\/user/],
    ['a URL that belongs to no option', ['status', SECRET_URL], /belongs to no option/],
    ['an unknown option', ['status', '--databse', 'x'], /--databse/],
    ['a schema that would have to be quoted', ['sql', '--schema', 'a b'], /--schema must be/],
    ['no duration', ['migrate', '--url', 'postgresql://a/b', '--timeout', 'x'], /--timeout/],
    ['JSON of what has none', ['migrate', '--json'], /--json is an option of status/],
    ['a version that is none', ['sql', '--from', 'one'], /--from is no version/],
    ['a version from later', ['sql', '--from', '99'], /--from is a version that/],
    ['a version that pg-boss does not know', ['sql', '--queue-from', '1'], /--queue-from/],
  ])('refuses %s, and shows nothing of it', async (_, args, message) => {
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

describe('The command sql', () => {
  it('prints the steps behind a version, and of pg-boss only what it is asked for', async () => {
    const { stdout } = await commandLine(['sql', '--from', '2', '--schema', 'hooks']);

    expect(stdout).toMatch(/^-- 3 delivery\n/);
    expect(stdout).toContain(`INSERT INTO hooks.migration (version, name) VALUES (3, 'delivery');`);
    expect(stdout).not.toContain('pg-boss');
  });

  it('prints how pg-boss comes from a version to its own', async () => {
    const { stdout } = await commandLine(['sql', '--from', '3', '--queue-from', '42']);

    expect(stdout).toMatch(/^-- pg-boss \d+\n/);
    expect(stdout).toMatch(/UPDATE webhooks\.version SET version/i);
  });

  it('leaves pg-boss out', async () => {
    const { stdout } = await commandLine(['sql', '--no-queue']);

    expect(stdout).toMatch(/^CREATE SCHEMA IF NOT EXISTS webhooks;\n/);
    expect(stdout).not.toContain('webhooks.job');
  });
});
