import { createServer } from 'node:http';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execFile } from 'node:child_process';
import { Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, expect, it } from '@jest/globals';
import { HttpService } from '@nestjs/axios';
import { Injectable } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { InMemoryWebhookTransport } from 'nestjs-webhook-token/testing';
import {
  PostgresQueue,
  PostgresEndpointStore,
  PostgresInboxStore,
} from 'nestjs-webhook-token/postgres';
import {
  OnWebhookEvent,
  WebhookDeliveries,
  WebhookEndpoints,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { runCommandLine } from '../../lib/cli/command-line.js';
import { call } from '../fixtures/console-app.js';
import { head, send, type Answer } from '../fixtures/http-client.js';
import { ISSUER, SECRET, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { storeIn, TestDatabase, until } from '../postgres/database.js';
import { Sink } from './conformance-run.js';

const ROOT = join(import.meta.dirname, '../..');
const SEALING_KEY = { id: 'k1', key: 'a-sealing-key-of-32-bytes-or-more-01' };

@Injectable()
class Orders {
  @OnWebhookEvent('order.*')
  on(): void {
    throw new Error('out of stock');
  }
}

/** A command that runs until it is stopped. */
class Running {
  readonly stdout = new Sink();
  readonly stderr = new Sink();
  readonly ended: Promise<number>;
  private readonly interrupt = new AbortController();

  constructor(args: readonly string[], env: Record<string, string>) {
    const { stdout, stderr, interrupt } = this;
    const io = { stdin: Readable.from([]), stdout, stderr, env, signal: interrupt.signal };
    this.ended = runCommandLine(['console', '--port', '0', ...args], io);
  }

  /** The printed URL. */
  async url(): Promise<URL> {
    const printed = (): string | undefined => /http:[^\s"]+/.exec(this.stdout.text)?.[0];
    let hasEnded = false;
    void this.ended.then(() => (hasEnded = true));
    await until(() => hasEnded || printed() !== undefined);
    if (printed() === undefined) throw new Error(this.stderr.text);
    return new URL(printed()!);
  }

  async stop(): Promise<number> {
    this.interrupt.abort();
    return this.ended;
  }
}

(await describeWith('PostgreSQL'))('The command console', () => {
  const DATABASE_URL = urlOf('PostgreSQL');
  const database = new TestDatabase();
  const { pool } = database;
  const schema = database.newSchema();
  const reader = `${schema}_reader`;
  let status = 500;
  let running: Running | undefined;
  let deadId: string;

  /** The application. Its endpoints answer each delivery with `status`. */
  async function startShop(): Promise<StartedApp> {
    const store = storeIn(schema);
    const transport = new InMemoryWebhookTransport(() => status);
    class Http {}
    return startApp(new ExpressAdapter(), {
      providers: [Orders],
      options: {
        httpModule: {
          module: Http,
          providers: [{ provide: HttpService, useValue: transport }],
          exports: [HttpService],
        },
        inbox: { store: new PostgresInboxStore(pool, store), payload: true },
        receiver: {
          path: 'webhooks',
          issuers: [{ issuer: ISSUER, secret: SECRET }],
          acknowledge: 'queued',
          retry: { attempts: 1 },
          queue: new PostgresQueue({ pool, schema, name: 'received-webhooks' }),
        },
        publisher: {
          issuer: ISSUER,
          secret: SECRET,
          allowedAddresses: ['0.0.0.0/0'],
          retry: { attempts: 1 },
          sealingKeys: [SEALING_KEY],
          queue: new PostgresQueue({ pool, schema, lease: '45s', keepDelivered: '24h' }),
          endpointStore: new PostgresEndpointStore(pool, store),
        },
      },
    });
  }

  const idsOf = ({ json }: Answer): unknown[] =>
    (json as unknown as { items: { id: string }[] }).items.map(({ id }) => id);

  beforeAll(async () => {
    await new PostgresEndpointStore(pool, { schema }).migrate();
    const { app, origin } = await startShop();
    await app.get(WebhookEndpoints).create({ id: 'crm', url: 'https://192.0.2.1/hooks?key=abc' });
    const { deliveries } = await app.get(WebhookPublisher).publish('order.paid', { n: 1 });
    deadId = deliveries[0]!.id;
    const isDead = async (): Promise<boolean> =>
      (await app.get(WebhookDeliveries).get(deadId))?.status === 'dead';
    await until(isDead);
    expect((await head(origin, signed({ data: { n: 2 } }))).status).toBe(202);
    await until(async () => {
      const dead = `SELECT FROM ${schema}.inbox WHERE outcome = 'dead'`;
      return (await pool.query(dead)).rowCount === 1;
    });
    const url = 'https://192.0.2.1/draft';
    await app.get(WebhookEndpoints).create({ id: 'draft', url, profile: 'swt-draft-02' });
    await app.close();
    await pool.query(`CREATE ROLE ${reader} LOGIN PASSWORD 'not-to-be-shown';
      GRANT USAGE ON SCHEMA ${schema} TO ${reader};
      GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${reader}`);
  });
  afterEach(async () => {
    await running?.stop();
    running = undefined;
  });
  afterAll(async () => {
    await pool.query(`DROP OWNED BY ${reader}; DROP ROLE ${reader}`);
    await database.close();
  });

  type Ask = (method: string, path: string, body?: unknown) => Promise<Answer>;

  /** Starts the command, and logs in as the page does. */
  async function open(...args: readonly string[]): Promise<Ask> {
    return openAs(DATABASE_URL, ...args);
  }

  async function openAs(databaseUrl: string, ...args: readonly string[]): Promise<Ask> {
    const env = { DATABASE_URL: databaseUrl, USER: 'ada' };
    running = new Running(['--schema', schema, ...args], env);
    const url = await running.url();
    const token = /^#token=(.+)$/.exec(url.hash)?.[1];
    const opened = await call(url.origin, 'POST', '/console/api/session', { token });
    const cookie = String(opened.headers['set-cookie']).split(';')[0]!;
    return (method, path, body) =>
      call(url.origin, method, `/console/api/${path}`, body, { cookie });
  }

  it('shows what the stores hold to a role that can only read', async () => {
    const url = new URL(DATABASE_URL);
    [url.username, url.password] = [reader, 'not-to-be-shown'];
    const ask = await openAs(url.href);

    expect((await ask('GET', 'session')).json).toMatchObject({
      kind: 'console',
      capabilities: ['view'],
      actor: 'ada',
      features: { deliveries: true, endpoints: true, inbox: true, deadLetters: false },
    });
    expect(idsOf(await ask('GET', 'deliveries?status=dead'))).toEqual([deadId]);
    expect((await ask('GET', `deliveries/${deadId}`)).json).toMatchObject({
      attempts: [{ statusCode: 500 }],
    });
    expect((await ask('GET', 'endpoints/crm')).json).toMatchObject({
      url: 'https://192.0.2.1/hooks',
      health: { state: 'failing', reason: 'http_500', successRate24h: 0, counts: { dead: 1 } },
    });
    expect((await ask('GET', 'overview')).json).toMatchObject({ inbox: { accepted: 1 } });
    expect((await ask('GET', 'inbox?outcome=dead')).json).toMatchObject({
      items: [{ event: 'order.created' }],
    });
    const refused = await Promise.all([
      ask('GET', `deliveries/${deadId}/payload`),
      ask('POST', 'deliveries/redeliver', { ids: [deadId], dryRun: false }),
      ask('POST', 'endpoints/crm/disable', {}),
    ]);
    expect(refused.map(({ status: code }) => code)).toEqual([403, 403, 403]);
    expect(await running!.stop()).toBe(0);
    expect(`${running!.stdout.text}${running!.stderr.text}`).not.toContain('not-to-be-shown');
  });

  it('redelivers, and leaves the attempt to the application', async () => {
    const ask = await open('--allow', 'redeliver', '--receiver-queue', 'received-webhooks');
    const dead = await ask('GET', 'dead-letters');
    const retried = await ask('POST', 'dead-letters/retry', { ids: idsOf(dead) });
    const answer = await ask('POST', 'deliveries/redeliver', { ids: [deadId], dryRun: false });
    const pending = await ask('GET', `deliveries/${deadId}`);
    await running!.stop();

    expect(dead.json).toMatchObject({ items: [{ receiver: 'default', event: 'order.created' }] });
    expect(retried.json).toEqual({ retried: idsOf(dead) });
    expect(answer.json).toMatchObject({ items: [{ id: deadId, redelivered: true }] });
    expect(pending.json).toMatchObject({ status: 'pending', attemptsMade: 0 });
    expect(running!.stderr.text).toContain(`delivery.redeliver by "ada" ("${deadId}", 1 affected)`);

    status = 200;
    const { app } = await startShop();
    await until(async () => (await app.get(WebhookDeliveries).get(deadId))?.status === 'delivered');
    await app.close();
  });

  it('manages endpoints whose secrets it cannot read', async () => {
    const keys = `SELECT keys FROM ${schema}.endpoint WHERE id = 'crm'`;
    const before = (await pool.query(keys)).rows;
    const ask = await open('--allow', 'manage-endpoints,view-payload');
    const disabled = await ask('POST', 'endpoints/crm/disable', {});
    const enabled = await ask('POST', 'endpoints/crm/enable', {});
    const paused = await ask('POST', 'endpoints/crm/pause', {});
    const resumed = await ask('POST', 'endpoints/crm/resume', {});
    const tested = await ask('POST', 'endpoints/crm/test', {});
    const payload = await ask('GET', `deliveries/${deadId}/payload`);

    expect(disabled.json).toMatchObject({ health: { state: 'disabled' } });
    expect(enabled.json).not.toHaveProperty('disabled');
    expect(paused.json).toMatchObject({ health: { state: 'paused' } });
    expect(resumed.json).not.toMatchObject({ health: { state: 'paused' } });
    expect([tested.status, tested.json?.['code']]).toEqual([409, 'unsupported_option']);
    expect(payload.json).toMatchObject({ text: '{"n":1}' });
    expect((await pool.query(keys)).rows).toEqual(before);
  });

  it('shows the format of an endpoint only if it is not one of the application', async () => {
    const ask = await open();
    const own = await ask('GET', 'endpoints/draft/format');
    const others = await ask('GET', 'endpoints/crm/format');

    expect(own.json).toEqual({ id: 'draft', profile: 'swt-draft-02' });
    expect([others.status, others.json?.['code']]).toEqual([409, 'unsupported_option']);
  });

  it('serves the page to everyone, and data only after the exchange of the token', async () => {
    running = new Running(['--schema', schema, '--json'], { DATABASE_URL });
    const url = await running.url();
    const { origin } = url;
    const get = (path: string, headers = {}): Promise<Answer> =>
      send(origin, { method: 'GET', path, headers });
    const exchange = (token: unknown): Promise<Answer> =>
      call(origin, 'POST', '/console/api/session', { token });
    const opened = await exchange(url.hash.slice('#token='.length));
    const [cookie] = String(opened.headers['set-cookie']).split(';');

    expect(JSON.parse(running.stdout.text)).toEqual({ url: url.href });
    expect(running.stdout.text).toMatch(/^.+\n$/);
    expect([(await get('/')).status, (await get('/')).headers.location]).toEqual([
      302,
      '/console/',
    ]);
    expect((await get('/console/')).text).toMatch(/^<!doctype html>/i);
    expect(String(opened.headers['set-cookie'])).toMatch(/; Path=\/; HttpOnly; SameSite=Strict$/);
    expect(String(opened.headers['set-cookie'])).not.toContain(url.hash.slice(7));
    expect((await get('/console/api/deliveries', { cookie })).status).toBe(200);
    for (const path of ['deliveries', 'session', 'events', '']) {
      for (const spelling of [`/console/api/${path}`, `/CONSOLE/API/${path}`]) {
        const { status: code, json } = await get(spelling, { cookie: 'webhook-console-1=x' });
        expect([spelling, code, json?.['code']]).toEqual([spelling, 401, 'session_required']);
      }
    }
    for (const wrong of ['', 'x'.repeat(43), undefined, 5, cookie!.split('=')[1]]) {
      const { status: code, json } = await exchange(wrong);
      expect([code, json?.['code']]).toEqual([401, 'link_invalid']);
    }
  });

  it('finds its session among other cookies with the same name', async () => {
    running = new Running(['--schema', schema], { DATABASE_URL });
    const { origin, hash } = await running.url();
    const token = hash.slice('#token='.length);
    const opened = await call(origin, 'POST', '/console/api/session', { token });
    const [session] = String(opened.headers['set-cookie']).split(';');
    const other = `${session!.split('=')[0]}=of-another-path`;
    const statusWith = async (cookie: string): Promise<number> =>
      (await call(origin, 'GET', '/console/api/session', undefined, { cookie })).status;

    expect(await statusWith(`${other}; ${session}`)).toBe(200);
    expect(await statusWith(`${session}; ${other}`)).toBe(200);
    expect(await statusWith(`${other}; ${other}`)).toBe(401);
  });

  it('listens for other machines only with a token of the user, which it does not print', async () => {
    const token = 'a-token-of-the-user-with-32-characters';
    const folder = await mkdtemp(join(tmpdir(), 'webhook-console-'));
    const file = join(folder, 'token');
    await writeFile(file, `${token}\n`);
    const args = ['--schema', schema, '--host', '0.0.0.0'];
    const open = new Running(args, { DATABASE_URL });
    const short = new Running(args, { DATABASE_URL, WEBHOOK_CONSOLE_TOKEN: 'not-to-be-shown' });
    running = new Running([...args, '--token-file', file], { DATABASE_URL });
    const url = await running.url();
    const { status: code } = await call(
      `http://127.0.0.1:${url.port}`,
      'POST',
      '/console/api/session',
      { token },
    );
    await rm(folder, { recursive: true });

    expect([await open.ended, open.stderr.text]).toEqual([
      2,
      expect.stringMatching(/WEBHOOK_CONSOLE_TOKEN or --token-file/),
    ]);
    expect([await short.ended, short.stderr.text]).toEqual([
      2,
      expect.stringMatching(/shorter than 32 characters/),
    ]);
    expect([code, url.hash]).toEqual([200, '']);
    expect(`${running.stdout.text}${running.stderr.text}${short.stderr.text}`).not.toMatch(
      /a-token-of|not-to-be-shown/,
    );
  });

  it.each<[string, string[], RegExp]>([
    ['a schema without tables', ['--schema', 'nothing_here'], /pass the --schema of the app/],
    ['an unknown capability', ['--allow', 'view,edit'], /--allow does not know "edit"/],
    ['keys', ['--allow', 'manage-secrets'], /only the application has the sealing keys/],
    [
      'an unknown queue',
      ['--allow', 'redeliver', '--queue', 'other'],
      /--queue: the schema test_\w+ has no deliveries of a queue "other"; it has "[^"]+", "[^"]+"\./,
    ],
    ['a port that is none', ['--port', 'x'], /--port must be a port number/],
  ])('refuses %s and says what to do', async (_, args, remedy) => {
    const refused = new Running(['--schema', schema, ...args], { DATABASE_URL });

    expect([await refused.ended, refused.stdout.text]).toEqual([2, '']);
    expect(refused.stderr.text).toMatch(remedy);
    expect(refused.stderr.text).toContain('console --help');
  });

  it('reports a port in use', async () => {
    const server = createServer();
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const refused = new Running(['--schema', schema, '--port', String(port)], { DATABASE_URL });

    expect([await refused.ended, refused.stderr.text]).toEqual([
      3,
      `Port ${port} of 127.0.0.1 cannot be used (EADDRINUSE).\n`,
    ]);
    await new Promise((resolve) => server.close(resolve));
  });

  it('names the package to install if @nestjs/platform-express is missing', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'webhook-cli-'));
    await cp(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true });
    await writeFile(join(folder, 'package.json'), '{"type":"module","version":"0.0.0"}');
    // Everything but that package.
    const modules = join(ROOT, 'node_modules');
    await mkdir(join(folder, 'node_modules/@nestjs'), { recursive: true });
    for (const name of (await readdir(modules)).filter(
      (one) => one !== '@nestjs' && one !== '.bin',
    )) {
      await symlink(join(modules, name), join(folder, 'node_modules', name));
    }
    for (const name of ['common', 'core']) {
      await symlink(join(modules, '@nestjs', name), join(folder, 'node_modules/@nestjs', name));
    }
    const args = [join(folder, 'dist/cli/main.js'), 'console', '--schema', schema, '--port', '0'];
    const env = { ...process.env, DATABASE_URL };
    const ended = await new Promise<{ code: unknown; stderr: string }>((resolve) => {
      execFile(process.execPath, args, { env }, (error, _stdout, stderr) =>
        resolve({ code: error?.code, stderr }),
      );
    });
    await rm(folder, { recursive: true });

    expect(ended.code).toBe(2);
    expect(ended.stderr).toMatch(
      /^The package @nestjs\/platform-express is not installed: npm install @nestjs\/platform-express\n/,
    );
  });
});
