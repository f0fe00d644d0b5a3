import { createCipheriv, createHash, hkdfSync } from 'node:crypto';
import dns from 'node:dns';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { HttpModule } from '@nestjs/axios';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  InProcessQueue,
  WebhookEndpoints,
  WebhookModule,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { PostgresEndpointStore } from 'nestjs-webhook-token/postgres';
import { flushDeliveries } from 'nestjs-webhook-token/testing';
import { Webhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';
import { runCommandLine } from '../../lib/cli/command-line.js';
import type { ImportReport } from '../../lib/cli/import.command.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from '../postgres/database.js';
import { Sink } from './conformance-run.js';
import {
  CONVOY_OAUTH2,
  convoyExport,
  destination,
  HEX_SECRET,
  officialTable,
  OTHER_SECRET,
  SECRETS,
  SVIX_SECRET,
  svixEntry,
} from './import-exports.js';

const DATABASE_URL = urlOf('PostgreSQL');
const SEALING_KEY = 'a sealing key of the application under test';
const KEY_ID = '2026-11';
const DAY = 86_400_000;
const CERTIFICATES = new URL('../egress/certificates/', import.meta.url);
/** Ten requests in four seconds. */
const LIMITED = { rate_limit: 10, rate_limit_duration: 4 };

/** Stands for an object with too many levels for any recursion. */
const DEEP = JSON.stringify('20,000 levels');
const deep = `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`;
/** Values that a source never has: no string can be made of the first ones. */
const MALFORMED = [{ toString: 1 }, [{ toString: 1 }], JSON.parse(DEEP), [JSON.parse(DEEP)]];

/** Copies of a JSON value, each with one member replaced, at any level. */
function malformed(value: unknown): unknown[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) =>
    [...MALFORMED, ...malformed(member)].map((other) =>
      Object.assign(Array.isArray(value) ? [...(value as unknown[])] : { ...value }, {
        [name]: other,
      }),
    ),
  );
}

interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function commandLine(
  args: readonly string[],
  exported: unknown,
  env: Record<string, string> = {},
): Promise<Ended> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const json = JSON.stringify(exported ?? null).replaceAll(DEEP, deep);
  const stdin = Readable.from([Buffer.from(json)]);
  const all = { DATABASE_URL, WEBHOOK_SEALING_KEY: SEALING_KEY, ...env };
  const code = await runCommandLine(['import', ...args], { stdin, stdout, stderr, env: all });
  for (const secret of [...SECRETS, SEALING_KEY]) {
    expect(stdout.text + stderr.text).not.toContain(secret);
  }
  return { code, out: stdout.text, err: stderr.text };
}

describe('import, before it connects', () => {
  it.each([
    ['no source', ['-'], /^Name the source: svix, outpost, convoy, nestjs\./],
    ['no file', ['svix'], /^Pass the file with the endpoints of svix/],
    ['outpost without a mode', ['outpost', '-'], /^--mode is required for outpost/],
    ['a mode for svix', ['svix', '-', '--mode', 'default'], /^--mode is only for outpost/],
    ['a schema for a file', ['nestjs', '-', '--from-schema', 'x'], /^--from-schema is only for/],
    ['a schema that is no name', ['nestjs', '--from-schema', 'a;b'], /^--from-schema /],
    ['--apply without the id of the key', ['svix', '-', '--apply'], /--sealing-key-id/],
    [
      'a key in place of its file',
      ['svix', '-', '--sealing-key-file', SEALING_KEY],
      /^The file of --sealing-key-file cannot be read/,
    ],
    ['a third word', ['svix', '-', 'x'], /^An argument without an option/],
  ])('refuses %s', async (_, args, message) => {
    const { code, err } = await commandLine(args, []);

    expect(code).toBe(2);
    expect(err).toMatch(message);
  });

  it('reports a database that does not answer, without its password', async () => {
    const url = 'postgresql://user:pa55@127.0.0.1:1/shop';
    const { code, err } = await commandLine(['svix', '-', '--database-url', url], [svixEntry()]);

    expect(code).toBe(2);
    expect(err).toMatch(/Check DATABASE_URL or --database-url\.\n$/);
    expect(err).not.toContain('pa55');
  });

  it('refuses a file that is not JSON', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'webhook-import-'));
    const file = join(folder, 'svix.json');
    await writeFile(file, 'whsec_');

    const { code, err } = await commandLine(['svix', file], []);

    expect(code).toBe(2);
    expect(err).toContain('svix.json is not valid JSON.');
    await rm(folder, { recursive: true });
  });
});

(await describeWith('PostgreSQL'))('import', () => {
  const database = new TestDatabase();
  let schema: string;
  let application: TestingModule | undefined;
  beforeAll(async () => {
    schema = database.newSchema();
    await runCommandLine(['migrate', '--schema', schema], {
      stdin: Readable.from([]),
      stdout: new Sink(),
      stderr: new Sink(),
      env: { DATABASE_URL },
    });
  });
  beforeEach(async () => {
    await application?.close();
    application = undefined;
    await database.pool.query(`DELETE FROM ${schema}.endpoint`);
  });
  afterAll(async () => {
    await application?.close();
    await database.close();
  });

  async function imported(
    args: readonly string[],
    exported: unknown,
    env: Record<string, string> = {},
  ): Promise<Ended> {
    const all = [...args, '--schema', schema, '--sealing-key-id', KEY_ID];
    return commandLine(all, exported, env);
  }

  async function reported(
    args: readonly string[],
    exported: unknown,
    env: Record<string, string> = {},
  ): Promise<ImportReport> {
    const { out, err } = await imported([...args, '--json'], exported, env);
    expect(err).toBe('');
    return JSON.parse(out) as ImportReport;
  }

  /** An application on the store that the command writes. */
  async function start(): Promise<TestingModule> {
    application = await Test.createTestingModule({
      imports: [
        WebhookModule.forRoot({
          httpModule: HttpModule.register({}),
          publisher: {
            issuer: 'https://shop.example',
            secret: 'a secret of the publisher under test',
            endpointStore: new PostgresEndpointStore(database.pool, { schema, timeout: '30s' }),
            sealingKeys: [{ id: KEY_ID, key: SEALING_KEY }],
            queue: new InProcessQueue(),
            allowHttp: true,
            allowPrivateNetworks: true,
          },
        }),
      ],
    }).compile();
    return application.init();
  }

  async function stored(): Promise<WebhookEndpoints> {
    return (await start()).get(WebhookEndpoints);
  }

  const countStored = async (): Promise<number> => {
    const { rows } = await database.pool.query(`SELECT count(*)::int AS n FROM ${schema}.endpoint`);
    return (rows[0] as { n: number }).n;
  };

  describe('a run without --apply', () => {
    it('prints what would happen, and writes nothing', async () => {
      const { code, out } = await imported(['svix', '-'], [svixEntry({}, { headers: undefined })]);

      expect(code).toBe(0);
      expect(out.split('\n').slice(0, 4)).toEqual([
        'result  id       tenant  url                         events              body  state',
        'create  ep_svix  acme    https://acme.example/hooks  order.created,ping  data  enabled',
        '  - headers: are missing in the export, so none is sent',
        'Nothing was written. 1 to create, 0 exist, 0 invalid.',
      ]);
      expect(await countStored()).toBe(0);
    });

    it('shortens a long list of events in its table', async () => {
      const eventTypes = Array.from({ length: 300 }, (_, n) => `order.created.${n}`);
      const { out } = await imported(['svix', '-'], [svixEntry({ eventTypes })]);
      const [header, row] = out.split('\n');

      expect(row).toContain('order.created.0,order.created.1,order.created.2,… (300)  data');
      expect(header!.length).toBeLessThan(200);
    });

    it('needs no sealing key', async () => {
      await imported(['svix', '-', '--apply'], [svixEntry()]);
      const { code } = await commandLine(['svix', '-', '--schema', schema], [svixEntry()], {
        WEBHOOK_SEALING_KEY: '',
      });

      expect(code).toBe(0);
    });

    it('shows no query of a URL, which may be a credential', async () => {
      const url = 'https://acme.example/hooks?token=t0p';
      const { out } = await imported(['svix', '-'], [svixEntry({ url })]);

      expect(out).toContain('https://acme.example/hooks?…');
      expect(out).not.toContain('t0p');
    });
  });

  it.each([[[]], [['--apply']]])(
    'resolves hosts while it holds no lock that an application waits for (%j)',
    async (apply: string[]) => {
      const locks: unknown[] = [];
      const lookup = jest.spyOn(dns, 'lookup').mockImplementation(((
        _host: string,
        _options: object,
        callback: (error: null, addresses: dns.LookupAddress[]) => void,
      ) => {
        const held = `SELECT 1 FROM pg_locks WHERE relation = '${schema}.endpoint'::regclass AND pid <> pg_backend_pid()`;
        void database.pool
          .query(held)
          .then(({ rows }) => locks.push(rows))
          .finally(() => callback(null, [{ address: '93.184.216.34', family: 4 }]));
      }) as typeof dns.lookup);
      const entries = ['93.184.216.34', 'one.example', 'two.example'].map((host, index) =>
        svixEntry({ id: `ep_${index}`, url: `https://${host}/` }),
      );
      const { code } = await imported(['svix', '-', ...apply], entries);
      lookup.mockRestore();

      expect(code).toBe(0);
      expect(locks).toEqual([[], []]);
    },
  );

  it('creates each endpoint once', async () => {
    const entries = [svixEntry(), svixEntry({ id: 'ep_2', url: 'https://acme.example/2' })];
    const first = await imported(['svix', '-', '--apply'], entries);
    const changed = [svixEntry({ url: 'https://acme.example/moved' }), entries[1]];
    const second = await imported(['svix', '-', '--apply'], changed);

    expect(first).toMatchObject({ code: 0 });
    expect(first.out).toMatch(/\n2 created, 0 exist, 0 invalid\.\n$/);
    expect(second).toMatchObject({ code: 0 });
    expect(second.out).toMatch(/\n0 created, 2 exist, 0 invalid\.\n$/);
    expect(await (await stored()).get('ep_svix')).toMatchObject({
      url: 'https://acme.example/hooks',
    });
  });

  it('refuses the id of an endpoint of another tenant', async () => {
    await imported(['svix', '-', '--apply'], [svixEntry()]);
    const { endpoints } = await reported(['svix', '-'], [svixEntry({}, { app: { uid: 'bob' } })]);

    expect(endpoints).toMatchObject([
      { result: 'invalid', problems: [expect.stringMatching(/^id: another tenant/)] },
    ]);
  });

  it('refuses an id that is listed twice with different values', async () => {
    const first = svixEntry();
    const other = svixEntry({ url: 'https://acme.example/other' });
    const { endpoints } = await reported(['svix', '-'], [first, other, first]);
    const { code } = await imported(['svix', '-', '--apply'], [first, other]);

    expect(endpoints).toMatchObject([
      { result: 'create', url: 'https://acme.example/hooks' },
      { result: 'invalid', problems: [expect.stringMatching(/^id: is listed twice/)] },
      { result: 'exists', problems: [] },
    ]);
    expect([code, await countStored()]).toEqual([1, 0]);
  });

  describe('if one endpoint is invalid', () => {
    const entries = [svixEntry({ channels: ['vip'] }), svixEntry({ id: 'ep_2' })];

    it('writes none', async () => {
      const { code, out } = await imported(['svix', '-', '--apply'], entries);

      expect(code).toBe(1);
      expect(out).toMatch(/\n {2}! channels: there are none here; .*--skip-invalid\n/);
      expect(out).toMatch(/\nNothing was written\. 1 to create, 0 exist, 1 invalid\.\n$/);
      expect(await countStored()).toBe(0);
    });

    it('writes the others with --skip-invalid', async () => {
      const { code, out } = await imported(['svix', '-', '--apply', '--skip-invalid'], entries);

      expect(code).toBe(0);
      expect(out).toMatch(/\n1 created, 0 exist, 1 invalid\.\n$/);
      expect(await countStored()).toBe(1);
    });

    it('leaves no endpoint with half of its keys', async () => {
      const rotated = destination({
        credentials: {
          secret: 'whsec_c2hvcnQ=',
          previous_secret: OTHER_SECRET,
          previous_secret_invalid_at: new Date(Date.now() + DAY).toISOString(),
        },
      });
      const args = ['outpost', '-', '--mode', 'standard', '--apply', '--skip-invalid'];
      const { out } = await imported(args, [rotated]);

      expect(out).toMatch(/ {2}! secret: has 5 bytes/);
      expect(await countStored()).toBe(0);
    });
  });

  it.each<[name: string, entry: unknown, problem: RegExp]>([
    ['has no id', svixEntry({ id: undefined }), /^id: is missing/],
    ['has no secret', svixEntry({}, { secret: undefined }), /^secret: is missing/],
    ['has no tenant', svixEntry({}, { app: {} }), /^app: is missing/],
    ['has a plain URL', svixEntry({ url: 'http://acme.example/' }), /^url: .*http:/],
    ['is on this machine', svixEntry({ url: 'https://127.0.0.1/' }), /^url: .*loopback/],
    ['has no list of events', svixEntry({ eventTypes: [] }), /^events: must be a list/],
    ['has an event that is no name', svixEntry({ eventTypes: ['a b'] }), /^events\[0\]: "a b"/],
    [
      'has a public key',
      svixEntry({}, { secret: { key: `whpk_${'A'.repeat(43)}=` } }),
      /^secret: is a public key/,
    ],
    [
      'has a short secret',
      svixEntry({}, { secret: { key: 'whsec_c2hvcnQ=' } }),
      /^secret: has 5 bytes/,
    ],
    [
      'transforms events',
      svixEntry({}, { transformation: { enabled: true } }),
      /^transformation: /,
    ],
    [
      'has headers that Svix does not show',
      svixEntry({}, { headers: { headers: {}, sensitive: ['x-key'] } }),
      /^headers: .* x-key; add them/,
    ],
    [
      'has a hidden header whose name is no string',
      svixEntry({}, { headers: { headers: {}, sensitive: [{ toString: 1 }] } }),
      /^headers: .* \{"toString":1\}; add them/,
    ],
    [
      'has a header of the library',
      svixEntry({}, { headers: { headers: { 'Content-Type': 'x' }, sensitive: [] } }),
      /^credentials\.headers\["Content-Type"\]: is set by the library/,
    ],
    ['is disabled in words', svixEntry({ disabled: 'yes' }), /^disabled: "yes" is unknown/],
    [
      'may transform events',
      svixEntry({}, { transformation: { enabled: 'yes' } }),
      /^transformation: /,
    ],
    ['is no object', 7, /^id: is missing/],
  ])('refuses an endpoint that %s', async (_, entry, problem) => {
    const { endpoints } = await reported(['svix', '-'], [entry]);

    expect(endpoints).toMatchObject([{ result: 'invalid' }]);
    expect(endpoints[0]!.problems[0]).toMatch(problem);
  });

  it.each<[source: string, args: string[], rows: unknown[]]>([
    ['svix', [], malformed(svixEntry({}, { headers: { headers: {}, sensitive: ['x-key'] } }))],
    [
      'outpost',
      ['--mode', 'standard'],
      [
        ...malformed(
          destination({
            config: { url: 'https://acme.example/', custom_headers: { 'x-team': 'orders' } },
            credentials: { secret: SVIX_SECRET, previous_secret: OTHER_SECRET },
            filter: { data: { status: { $in: ['paid'] } } },
          }),
        ),
        ...[1, 2].map(() => destination({ config: { custom_headers: deep } })),
      ],
    ],
    [
      'nestjs',
      [],
      [
        ...malformed({
          id: 'ep_1',
          tenant: null,
          url: 'https://acme.example/',
          event_types: ['*'],
          enabled: true,
          secrets: [{ secret: SVIX_SECRET }, { secret: OTHER_SECRET, expiresAt: 1e15 }],
        }),
        ...[1, 2].map(() => ({ id: 'ep_2', event_types: `[${deep}]` })),
      ],
    ],
  ])('reports malformed rows of %s', async (source, args, rows) => {
    const { endpoints } = await reported([source, '-', ...args], rows);

    expect(endpoints).toHaveLength(rows.length);
  });

  it('reports malformed rows of convoy', async () => {
    const exported = convoyExport(LIMITED) as Record<string, object[]>;
    const one = (name: string): object => exported[name]![0]!;
    const [endpoint, subscription, filter] = [
      one('endpoints'),
      one('subscriptions'),
      one('filters'),
    ];
    const endpoints = [
      { api_key: { header_name: 'x-key', header_value: 'k3y' } },
      { basic_auth: { username: 'acme', password: 'p:w' } },
      { oauth2: CONVOY_OAUTH2 },
    ].flatMap((authentication) =>
      malformed({
        ...endpoint,
        authentication: { type: Object.keys(authentication)[0], ...authentication },
        mtls_client_cert: { client_cert: 'x', client_key: 'y' },
      }),
    );
    for (const all of [
      { endpoints, subscriptions: [subscription], filters: [filter] },
      {
        endpoints: [endpoint],
        subscriptions: malformed(subscription),
        filters: malformed(filter),
      },
    ]) {
      const report = await reported(['convoy', '-'], all);

      expect(report.endpoints).toHaveLength(all.endpoints.length);
    }
  });

  it('refuses a sealing key that the application does not have', async () => {
    await imported(['svix', '-', '--apply'], [svixEntry()]);
    const { code, err } = await imported(['svix', '-', '--apply'], [svixEntry({ id: 'ep_2' })], {
      WEBHOOK_SEALING_KEY: 'another key under the id of the application',
    });

    expect(code).toBe(2);
    expect(err).toMatch(/does not open the secret of endpoint "ep_svix"/);
    expect(await countStored()).toBe(1);
  });

  it('refuses a sealing key under an id that the application does not know', async () => {
    await imported(['svix', '-', '--apply'], [svixEntry()]);
    const args = ['svix', '-', '--schema', schema, '--sealing-key-id', 'K1'];
    const other = { WEBHOOK_SEALING_KEY: 'a key that the application does not have' };
    const dry = await commandLine(args, [svixEntry({ id: 'ep_2' })], other);
    const applied = await commandLine([...args, '--apply'], [svixEntry({ id: 'ep_2' })], other);

    for (const { code, err } of [dry, applied]) {
      expect(code).toBe(2);
      expect(err).toMatch(
        /^The sealing key "K1" does not open the secret of endpoint "ep_svix", nor any other: .* call reseal\(\)/,
      );
    }
    expect(await countStored()).toBe(1);
  });

  it('accepts a sealing key that opens some of the secrets', async () => {
    await imported(['svix', '-', '--apply'], [svixEntry({ id: 'ep_1' }), svixEntry()]);
    await database.pool.query(
      `UPDATE ${schema}.endpoint SET keys = replace(keys::text, '.${KEY_ID}"', '.older"')::json WHERE id = 'ep_1'`,
    );
    const { code } = await imported(['svix', '-', '--apply'], [svixEntry({ id: 'ep_2' })]);

    expect([code, await countStored()]).toEqual([0, 3]);
  });

  it('refuses a sealing key that is too short, without printing it', async () => {
    const { code, err } = await imported(['svix', '-', '--apply'], [svixEntry()], {
      WEBHOOK_SEALING_KEY: 'too-short',
    });

    expect(code).toBe(2);
    expect(err).toMatch(/^The sealing key cannot be used: .* has 9 bytes/);
    expect(err).not.toContain('too-short');
  });

  it('refuses a schema without tables', async () => {
    const args = ['svix', '-', '--schema', database.newSchema()];
    const { code, err } = await commandLine(args, [svixEntry()]);

    expect(code).toBe(2);
    expect(err).toMatch(/nestjs-webhook-token migrate/);
  });

  it.each([
    ['svix', {}],
    ['outpost', { models: [] }],
    ['convoy', []],
    ['nestjs', []],
  ])('refuses a file of %s without endpoints', async (source, exported) => {
    const mode = source === 'outpost' ? ['--mode', 'standard'] : [];
    const { code, err } = await imported([source, '-', ...mode], exported);

    expect(code).toBe(2);
    expect(err).toMatch(/must be|empty/);
  });

  describe('from Svix', () => {
    it('keeps everything that endpoints have here', async () => {
      const headers = { headers: { 'x-team': 'orders', 'x-key': 'added' }, sensitive: ['x-key'] };
      const settings = { disabled: true, uid: 'own-id', throttleRate: 5 };
      const { out } = await imported(['svix', '-', '--apply'], [svixEntry(settings, { headers })]);

      expect(out).not.toContain('  - ');
      expect(await (await stored()).get('ep_svix')).toMatchObject({
        tenant: 'acme',
        url: 'https://acme.example/hooks',
        events: ['order.created', 'ping'],
        description: 'Orders',
        metadata: { plan: 'gold', uid: 'own-id' },
        settings: {
          profile: 'standard-webhooks',
          envelope: false,
          rateLimit: { perSecond: 5, burst: 5 },
        },
        credentials: ['headers'],
        disabled: { reason: 'requested' },
        keys: [{ kid: expect.any(String) }],
      });
    });

    it('knows the names of version 1 of its API, and no event types as every event', async () => {
      const { endpoint, ...others } = svixEntry();
      const { eventTypes: _, throttleRate: __, ...old } = endpoint as Record<string, unknown>;
      const entries = [
        { ...others, endpoint: { ...old, filterTypes: ['order.paid'], rateLimit: 3 } },
        { ...others, app: { id: 'app_1', uid: null }, endpoint: { ...old, id: 'ep_2' } },
      ];
      await imported(['svix', '-', '--apply'], entries);
      const endpoints = await stored();

      expect(await endpoints.get('ep_svix')).toMatchObject({
        events: ['order.paid'],
        settings: { rateLimit: { perSecond: 3 } },
      });
      expect(await endpoints.get('ep_2')).toMatchObject({ events: ['**'], tenant: 'app_1' });
    });

    it('takes the rate of the application for an endpoint without one', async () => {
      const app = { uid: 'acme', id: 'app_2y1', throttleRate: 20 };
      const entries = [
        svixEntry({}, { app }),
        svixEntry({ id: 'ep_2', throttleRate: 60_000 }, { app }),
        svixEntry({ id: 'ep_3' }),
      ];
      await imported(['svix', '-', '--apply'], entries);
      const endpoints = await stored();
      const rateOf = async (id: string): Promise<unknown> =>
        (await endpoints.get(id)).settings.rateLimit;

      expect(await rateOf('ep_svix')).toEqual({ perSecond: 20, burst: 20 });
      // The highest rate of an endpoint.
      expect(await rateOf('ep_2')).toEqual({ perSecond: 10_000, burst: 10_000 });
      expect(await rateOf('ep_3')).toBeUndefined();
    });

    it('sends what the library of Svix and standardwebhooks verify, with the body that Svix sent', async () => {
      const requests: { headers: Record<string, string>; body: string }[] = [];
      const partner = createServer((request, response) => {
        void text(request).then((body) => {
          requests.push({ headers: request.headers as Record<string, string>, body });
          response.writeHead(204).end();
        });
      }).listen(0, '127.0.0.1');
      await once(partner, 'listening');
      const url = `http://127.0.0.1:${(partner.address() as AddressInfo).port}/hooks`;
      const args = ['svix', '-', '--apply', '--allow-http', '--allow-private'];
      const headersOut = { headers: { Authorization: 'Bearer gateway' }, sensitive: [] };
      const { code } = await imported(args, [svixEntry({ url }, { headers: headersOut })]);
      const app = await start();
      const publisher = app.get(WebhookPublisher);
      const payload = { type: 'order.created', id: 'o1' };

      await publisher.publish('order.created', payload, { tenant: 'acme', id: 'msg_1' });
      await publisher.publish('order.created', payload, { tenant: 'other' });
      await publisher.publish('order.paid', payload, { tenant: 'acme' });
      await publisher.publish('ping', { type: 'ping' }, { tenant: 'acme' });
      await flushDeliveries(app);

      expect(code).toBe(0);
      expect(requests.map(({ body: sent }) => JSON.parse(sent))).toEqual(
        expect.arrayContaining([payload, { type: 'ping' }]),
      );
      expect(requests).toHaveLength(2);
      const { headers, body } = requests.find((one) => one.headers['webhook-id'] === 'msg_1')!;
      expect(headers['authorization']).toBe('Bearer gateway');
      expect(new Webhook(SVIX_SECRET).verify(body, headers)).toEqual(payload);
      new SvixWebhook(SVIX_SECRET).verify(body, headers);
      expect(() => new SvixWebhook(OTHER_SECRET).verify(body, headers)).toThrow();
      partner.close();
    });
  });

  describe('from Outpost', () => {
    const standard = ['outpost', '-', '--mode', 'standard'];

    it('keeps a secret that a rotation has replaced until it expires', async () => {
      const expiry = new Date(Date.now() + DAY);
      await imported(
        [...standard, '--apply'],
        [
          destination({
            metadata: { team: 'orders' },
            credentials: {
              secret: SVIX_SECRET,
              previous_secret: OTHER_SECRET,
              previous_secret_invalid_at: expiry.toISOString(),
            },
          }),
        ],
      );
      const { keys, ...endpoint } = await (await stored()).get('des_1');

      expect(endpoint).toMatchObject({ tenant: 'acme', metadata: { team: 'orders' } });
      expect(keys).toHaveLength(2);
      const seconds = (time: Date): number => Math.round(time.getTime() / 10_000);
      expect(seconds(keys[1]!.signsFrom)).toBe(seconds(expiry));
    });

    it.each([
      ['*', ['**']],
      [['*'], ['**']],
      [
        ['order.*', 'a.*.b'],
        ['order.*.**', 'a.*.**.b'],
      ],
    ])('reads the topics %j', async (topics, events) => {
      const { endpoints } = await reported(standard, [destination({ topics })]);

      expect(endpoints).toMatchObject([{ result: 'create', events }]);
    });

    it.each([[undefined], [[]], [['us*er']]])('refuses the topics %j', async (topics) => {
      const { endpoints } = await reported(standard, [destination({ topics })]);

      expect(endpoints).toMatchObject([{ result: 'invalid' }]);
      expect(endpoints[0]!.problems[0]).toMatch(/^events/);
    });

    it('translates a filter that selects the same events here', async () => {
      const filter = {
        topic: { $startsWith: 'order.' },
        data: {
          status: 'paid',
          total: { $gte: 100, $lt: 500 },
          customer: { country: { $in: ['DE', 'AT'] }, vip: { $exist: true } },
          deleted: { $exist: false },
        },
        $or: [{ data: { currency: 'eur' } }, { data: { currency: null } }],
      };
      await imported([...standard, '--apply'], [destination({ filter })]);
      const endpoints = await stored();
      const data = { status: 'paid', total: 100, customer: { country: 'AT', vip: 1 } };
      const matches = async (more: object, event = 'order.paid'): Promise<boolean> =>
        endpoints.testFilter('des_1', event, { ...data, ...more });

      expect(await matches({ currency: 'eur' })).toBe(true);
      expect(await matches({ currency: null })).toBe(true);
      expect(await matches({})).toBe(false);
      expect(await matches({ currency: 'eur', deleted: null })).toBe(false);
      expect(await matches({ currency: 'eur', total: 500 })).toBe(false);
      expect(await matches({ currency: 'eur' }, 'refund.paid')).toBe(false);
    });

    it.each([
      ['filter.metadata', { metadata: { source: 'api' } }],
      ['filter.data.status.$neq', { data: { status: { $neq: 'x' } } }],
      ['filter.data.mail.$endsWith', { data: { mail: { $endsWith: '.de' } } }],
      ['filter.data.tags', { data: { tags: ['a', 'b'] } }],
      ['filter.data.customer.vip.$exist', { data: { customer: { vip: { $exist: false } } } }],
      ['filter.data.$or', { data: { $or: [{ a: 1 }], b: 2 } }],
      ['filter.$not', { $not: { data: { a: 1 } } }],
      ['filter.$or[1].time', { $or: [{ data: { a: 1 } }, { time: 'x' }] }],
    ])('refuses a filter with %s', async (path, filter) => {
      const { endpoints } = await reported(standard, [destination({ filter })]);

      expect(endpoints).toMatchObject([{ result: 'invalid' }]);
      expect(endpoints[0]!.problems[0]).toContain(`${path}: `);
    });

    it('refuses a filter that is too large here', async () => {
      const conditions = Array.from({ length: 65 }, (_, index) => ({ data: { a: index } }));
      const filter = { $or: conditions };
      const { endpoints } = await reported(standard, [destination({ filter })]);

      expect(endpoints[0]!.problems[0]).toMatch(/^filter/);
    });

    it.each<[name: string, changes: object, problem: RegExp]>([
      [
        'with a number as a time',
        { disabled_at: 1_772_000_000 },
        /^disabled_at: 1772000000 is unknown/,
      ],
      ['of another type', { type: 'aws_sqs' }, /^type: is "aws_sqs"/],
      ['without a tenant', { tenant_id: undefined }, /^tenant_id: /],
      ['that expires', { expires_at: '2027-01-01T00:00:00Z' }, /^expires_at: /],
      [
        'with a number as the end of its previous secret',
        {
          credentials: {
            secret: SVIX_SECRET,
            previous_secret: OTHER_SECRET,
            previous_secret_invalid_at: 1_796_042_875,
          },
        },
        /^credentials\.previous_secret_invalid_at: 1796042875 is unknown/,
      ],
      [
        'with headers that are no object',
        { config: { url: 'https://a.example', custom_headers: 7 } },
        /^credentials\.headers: /,
      ],
      [
        'with broken headers',
        { config: { url: 'https://a.example', custom_headers: '{' } },
        /^config\.custom_headers: /,
      ],
    ])('refuses a destination %s', async (_, changes, problem) => {
      const { endpoints } = await reported(standard, [destination(changes)]);

      expect(endpoints[0]!.problems[0]).toMatch(problem);
    });

    it.each([['{"x-team":"orders"}'], [{ 'x-team': 'orders' }]])(
      'sends the custom headers %j',
      async (custom_headers) => {
        const config = { url: 'https://acme.example/', custom_headers };
        await imported([...standard, '--apply'], [destination({ config })]);

        expect(await (await stored()).get('des_1')).toMatchObject({ credentials: ['headers'] });
      },
    );

    it('pauses endpoints of the mode "default", whose partners cannot verify a request yet', async () => {
      const args = ['outpost', '-', '--mode', 'default', '--apply'];
      const own = destination({
        credentials: { secret: HEX_SECRET },
        config: { url: 'https://acme.example/', custom_headers: '{"x-team":"orders"}' },
      });
      const off = destination({ id: 'des_2', disabled_at: '2026-03-01T00:00:00Z' });
      const { out } = await imported(args, [own, off]);
      const endpoints = await stored();

      expect(out).toContain('- the partner has to verify Standard Webhooks, with the same secret');
      expect(await endpoints.get('des_1')).toMatchObject({
        pausedAt: expect.any(Date),
        credentials: ['headers'],
      });
      expect(await endpoints.get('des_2')).toMatchObject({ disabled: { reason: 'requested' } });
    });
  });

  describe('from Convoy', () => {
    it('keeps the key, and pauses the endpoint until its partner verifies Standard Webhooks', async () => {
      // Convoy signs with the bytes of UTF-8.
      const secret = 'a secret with an Ü, such as customers choose';
      const exported = convoyExport({ secrets: [{ value: secret }] });
      const { code, out } = await imported(['convoy', '-', '--apply'], exported);
      const app = await start();
      const publisher = app.get(WebhookPublisher);
      const endpoint = await app.get(WebhookEndpoints).get('01HCONVOY');
      const { headers, body } = await publisher.sign('01HCONVOY', 'order.created', { id: 'o1' });

      expect(code).toBe(0);
      expect(endpoint).toMatchObject({
        tenant: 'acme',
        description: 'Acme orders',
        events: ['order.created', 'order.paid'],
        pausedAt: expect.any(Date),
        settings: { timeout: 10_000 },
      });
      expect(out).toContain(": new Webhook(Buffer.from(secret), { format: 'raw' });");
      const partner = new Webhook(Buffer.from(secret), { format: 'raw' });
      expect(partner.verify(String(body), headers as Record<string, string>)).toMatchObject({
        type: 'order.created',
        data: { id: 'o1' },
      });
    });

    it.each<[name: string, endpoint: object, subscription: object, problem: RegExp]>([
      ['has no subscription', { uid: '01HOTHER' }, {}, /^has no subscription/],
      [
        'authenticates by a client assertion',
        {
          authentication: {
            type: 'oauth2',
            oauth2: { ...CONVOY_OAUTH2, authentication_type: 'client_assertion' },
          },
        },
        {},
        /^authentication: /,
      ],
      [
        'reads an access token from another member',
        {
          authentication: {
            type: 'oauth2',
            oauth2: { ...CONVOY_OAUTH2, field_mapping: { access_token: 'jwt' } },
          },
        },
        {},
        /^authentication: /,
      ],
      ['has an API key without a header', { authentication: { type: 'api_key' } }, {}, /^credent/],
      [
        'has an API key whose header is no string',
        {
          authentication: {
            type: 'api_key',
            api_key: { header_name: { toString: 1 }, header_value: 'v' },
          },
        },
        {},
        /^credentials\.headers/,
      ],
      [
        'has no password',
        { authentication: { type: 'basic_auth', basic_auth: { username: 'acme' } } },
        {},
        /^authentication: its user name/,
      ],
      [
        'has a client certificate without its key',
        { mtls_client_cert: { client_cert: 'x', client_key: '[REDACTED]' } },
        {},
        /^mtls_client_cert: .* add it to the export as client_key/,
      ],
      [
        'has a client certificate that cannot be read',
        { mtls_client_cert: { client_cert: 'x', client_key: 'y' } },
        {},
        /^credentials\.certificate: cannot be read/,
      ],
      ['has a limit that is no duration', { ...LIMITED, rate_limit_duration: 'x' }, {}, /^rateLi/],
      ['gets forms', { content_type: 'application/x-www-form-urlencoded' }, {}, /^content_type: /],
      ['has an unknown status', { status: 'pending' }, {}, /^status: "pending"/],
      ['has no secret that is valid', { secrets: [] }, {}, /^secret: is missing/],
      ['transforms events', {}, { function: 'function transform(p) {}' }, /^function: /],
      [
        'has a filter',
        {},
        { filter_config: { event_types: ['*'], filter: { body: { total: { $gte: 1 } } } } },
        /^filter: Convoy skips a condition/,
      ],
    ])('refuses an endpoint that %s', async (_, endpoint, subscription, problem) => {
      const { endpoints } = await reported(['convoy', '-'], convoyExport(endpoint, subscription));

      expect(endpoints).toMatchObject([{ result: 'invalid' }]);
      expect(endpoints[0]!.problems[0]).toMatch(problem);
    });

    it.each<[name: string, filter: object, problem: RegExp]>([
      ['selects by data', { body: { total: { $gte: 1 } } }, /^filter: Convoy skips a condition/],
      ['is not active', { enabled_at: null }, /^filters: one of them is not active/],
    ])('refuses an endpoint with a filter that %s', async (_, filter, problem) => {
      const { endpoints } = await reported(['convoy', '-'], convoyExport({}, {}, filter));

      expect(endpoints[0]!.problems[0]).toMatch(problem);
    });

    it('refuses an export without filters, because they exclude events', async () => {
      const { filters: _, ...exported } = convoyExport() as { filters: unknown };
      const { code, err } = await imported(['convoy', '-'], exported);

      expect(code).toBe(2);
      expect(err).toMatch(/must be an object \{ endpoints, subscriptions, filters \}/);
    });

    it('reads every event, and a state', async () => {
      const subscription = { filter_config: { event_types: ['*'] } };
      const endpoint = { status: 'inactive', owner_id: '' };
      const { endpoints } = await reported(['convoy', '-'], convoyExport(endpoint, subscription));

      expect(endpoints).toMatchObject([
        {
          result: 'create',
          events: ['**'],
          state: 'disabled',
          notes: [expect.stringMatching(/Standard/)],
        },
      ]);
      expect(endpoints[0]).not.toHaveProperty('tenant');
    });

    it('knows the names and durations of older versions of its API', async () => {
      const old = { url: undefined, target_url: 'https://acme.example/old', name: undefined };
      const endpoint = { ...old, title: 'Old', http_timeout: '1m5s', rate_limit_duration: '1m0s' };
      await imported(['convoy', '-', '--apply'], convoyExport({ ...endpoint, rate_limit: 5_000 }));

      expect(await (await stored()).get('01HCONVOY')).toMatchObject({
        url: 'https://acme.example/old',
        description: 'Old',
        settings: { timeout: 65_000, rateLimit: { perSecond: 5_000 / 60, burst: 5_000 } },
      });
    });

    it.each<[limit: object, rateLimit: object | undefined]>([
      [LIMITED, { perSecond: 2.5, burst: 10 }],
      [{ rate_limit: 10, rate_limit_duration: 0 }, undefined],
      [{ rate_limit: 0, rate_limit_duration: 60 }, undefined],
    ])('reads the limit %j', async (limit, rateLimit) => {
      await imported(['convoy', '-', '--apply'], convoyExport(limit));
      const { settings } = await (await stored()).get('01HCONVOY');

      expect(settings.rateLimit).toEqual(rateLimit);
    });

    it.each<[name: string, authentication: object, sent: Record<string, string>]>([
      [
        'an API key',
        { type: 'api_key', api_key: { header_name: 'X-Api-Key', header_value: 'k3y' } },
        { 'x-api-key': 'k3y' },
      ],
      [
        'Basic',
        { type: 'basic_auth', basic_auth: { username: 'acme', password: 'p:w' } },
        { authorization: `Basic ${Buffer.from('acme:p:w').toString('base64')}` },
      ],
      [
        'OAuth 2',
        { type: 'oauth2', oauth2: CONVOY_OAUTH2 },
        { authorization: 'Bearer read:hooks;https://api.example;client;c1i3nt-s3cret' },
      ],
    ])('goes on authenticating by %s', async (_, authentication, sent) => {
      const requests: Record<string, unknown>[] = [];
      const partner = createServer((request, response) => {
        void text(request).then((body) => {
          if (request.url !== '/token') {
            requests.push(request.headers);
            return response.writeHead(204).end();
          }
          const form = new URLSearchParams(body);
          const token = ['scope', 'audience', 'client_id', 'client_secret'].map((one) =>
            form.get(one),
          );
          return response
            .writeHead(200, { 'content-type': 'application/json' })
            .end(JSON.stringify({ access_token: token.join(';'), token_type: 'Bearer' }));
        });
      }).listen(0, '127.0.0.1');
      await once(partner, 'listening');
      const origin = `http://127.0.0.1:${(partner.address() as AddressInfo).port}`;
      const args = ['convoy', '-', '--apply', '--allow-http', '--allow-private'];
      const own = JSON.parse(JSON.stringify(authentication).replace('ORIGIN', origin)) as object;
      const exported = convoyExport({ url: `${origin}/hooks`, authentication: own });
      const { out } = await imported(args, exported);
      const app = await start();
      await app.get(WebhookEndpoints).resume('01HCONVOY');

      await app.get(WebhookPublisher).publish('order.created', {}, { tenant: 'acme' });
      await flushDeliveries(app);

      expect(out).toContain('1 created');
      expect(requests).toMatchObject([sent]);
      partner.close();
    });

    it('imports a client certificate whose key was added', async () => {
      const certificate = {
        client_cert: await readFile(new URL('hooks.test.cert.pem', CERTIFICATES), 'utf8'),
        client_key: await readFile(new URL('hooks.test.key.pem', CERTIFICATES), 'utf8'),
      };
      await imported(['convoy', '-', '--apply'], convoyExport({ mtls_client_cert: certificate }));

      expect(await (await stored()).get('01HCONVOY')).toMatchObject({
        credentials: ['certificate'],
      });
    });
  });

  describe('from @nestjs/webhooks', () => {
    const ENCRYPTION_KEY = 'an encryption key of the official package';

    /** As the package seals: AES-256-GCM under a derived key, bound to the endpoint's id. */
    function sealed(endpointId: string, secret: string): string {
      const key = Buffer.from(hkdfSync('sha256', ENCRYPTION_KEY, '', 'nestjs-webhooks:v1', 32));
      const id = createHash('sha256').update(key).digest('base64url').slice(0, 8);
      const iv = Buffer.alloc(12, 7);
      const cipher = createCipheriv('aes-256-gcm', key, iv).setAAD(Buffer.from(endpointId));
      const text = Buffer.concat([cipher.update(secret), cipher.final()]);
      const parts = [iv, text, cipher.getAuthTag()].map((part) => part.toString('base64url'));
      return ['sealed.v1', id, ...parts].join('.');
    }

    const secretOf = (secret: string, expiresAt: number | null = null): object => ({
      secret,
      createdAt: 1,
      expiresAt,
    });

    const rowWith = (more: object): object => ({
      id: 'ep_1',
      tenant: null,
      url: 'https://acme.example/',
      event_types: '["*"]',
      secrets: [secretOf(SVIX_SECRET)],
      ...more,
    });

    async function insert(from: string, id: string, secrets: object[], more = {}): Promise<void> {
      const row = {
        tenant: 'acme',
        types: ['order.created'],
        enabled: true,
        reason: null,
        ...more,
      };
      await database.pool.query(
        `INSERT INTO ${from}.endpoints VALUES ($1, $2, 'https://acme.example/', $3, NULL, $4, $5, NULL, $6, 1, 1)`,
        [
          id,
          row.tenant,
          JSON.stringify(row.types),
          row.enabled,
          row.reason,
          JSON.stringify(secrets),
        ],
      );
    }

    it('reads its tables, with sealed secrets and rotations', async () => {
      const from = database.newSchema();
      await database.pool.query(officialTable(from));
      const rotated = [
        secretOf(sealed('ep_1', SVIX_SECRET)),
        secretOf(sealed('ep_1', OTHER_SECRET), Date.now() + DAY),
        secretOf('expired', 5),
      ];
      await insert(from, 'ep_1', rotated);
      const off = { tenant: null, types: ['*'], enabled: false, reason: 'failing' };
      await insert(from, 'ep_2', [secretOf(OTHER_SECRET)], off);
      const { code, out } = await imported(
        ['nestjs', '--from-schema', from, '--apply'],
        undefined,
        {
          WEBHOOKS_ENCRYPTION_KEYS: `some other key, ${ENCRYPTION_KEY}`,
        },
      );
      const endpoints = await stored();

      expect(code).toBe(0);
      expect(out).toContain('- was disabled: failing');
      const one = await endpoints.get('ep_1');
      expect(one).toMatchObject({ tenant: 'acme', events: ['order.created'] });
      expect(one.settings).toEqual({ profile: 'standard-webhooks' });
      expect(one.keys).toHaveLength(2);
      const two = await endpoints.get('ep_2', { tenant: null });
      expect(two).toMatchObject({ events: ['**'], disabled: { reason: 'requested' } });
      const { headers, body } = await application!
        .get(WebhookPublisher)
        .sign('ep_1', 'order.created', {});
      for (const secret of [SVIX_SECRET, OTHER_SECRET]) {
        new SvixWebhook(secret).verify(String(body), headers);
      }
    });

    it('keeps every secret until it expires', async () => {
      const now = Date.now();
      const expiring = [2, 3, 1, 1].map((days, index) =>
        secretOf(`whsec_${Buffer.alloc(32, index).toString('base64')}`, now + days * DAY),
      );
      const secrets = [secretOf(SVIX_SECRET), ...expiring];
      const { code } = await imported(
        ['nestjs', '-', '--apply'],
        [rowWith({ enabled: true, secrets })],
      );
      const { keys } = await (await stored()).get('ep_1', { tenant: null });
      const { headers } = await application!
        .get(WebhookPublisher)
        .sign('ep_1', 'order.created', {});

      expect(code).toBe(0);
      const days = keys.map(({ signsFrom }) => Math.round((signsFrom.getTime() - now) / DAY));
      expect(days).toEqual([0, 1, 1, 2, 3]);
      expect(headers['webhook-signature']!.split(' ')).toHaveLength(5);
    });

    it.each([
      ['does not expire', secretOf(OTHER_SECRET)],
      ['expires at a time in words', { secret: OTHER_SECRET, expiresAt: '2099-01-01' }],
      ['is missing', { expiresAt: Date.now() + DAY }],
    ])('refuses an older secret that %s', async (_, older) => {
      const row = rowWith({ enabled: true, secrets: [secretOf(SVIX_SECRET), older] });
      const { endpoints } = await reported(['nestjs', '-'], [row]);

      expect(endpoints).toMatchObject([
        { result: 'invalid', problems: [expect.stringMatching(/^secrets: an older one /)] },
      ]);
    });

    it.each([
      ['without its key', 'ep_1', {}, /encrypted with the key .* WEBHOOKS_ENCRYPTION_KEYS/],
      [
        'sealed for another endpoint',
        'ep_9',
        { WEBHOOKS_ENCRYPTION_KEYS: ENCRYPTION_KEY },
        /cannot be decrypted/,
      ],
    ])('refuses a secret %s', async (_, id, env: Record<string, string>, problem) => {
      const row = {
        id: 'ep_1',
        tenant: null,
        url: 'https://acme.example/',
        event_types: '["*"]',
        enabled: 1,
        secrets: JSON.stringify([secretOf(sealed(id, SVIX_SECRET))]),
      };
      const { endpoints } = await reported(['nestjs', '-'], [row], env);

      expect(endpoints).toMatchObject([{ result: 'invalid', state: 'enabled' }]);
      expect(endpoints[0]!.problems[0]).toMatch(problem);
    });

    it.each([
      ['enabled', [true, 1, '1', 't', 'true']],
      ['disabled', [false, 0, '0', 'f', 'false']],
    ])('reads %s as any database exports it', async (state, values) => {
      for (const enabled of values) {
        const { endpoints } = await reported(['nestjs', '-'], [rowWith({ enabled })]);

        expect(endpoints).toMatchObject([{ result: 'create', state }]);
      }
    });

    it.each([
      ['is missing', {}, 'enabled: is missing; add it to the export'],
      ['has another value', { enabled: 'yes' }, 'enabled: "yes" is unknown; write true or false'],
    ])('refuses a row whose column "enabled" %s', async (_, more, problem) => {
      const { endpoints } = await reported(['nestjs', '-'], [rowWith(more)]);

      expect(endpoints).toMatchObject([{ result: 'invalid', problems: [problem] }]);
    });

    it('says which table is missing', async () => {
      const { code, err } = await imported(['nestjs', '--from-schema', 'no_such'], undefined);

      expect(code).toBe(2);
      expect(err).toMatch(/^The database has no table no_such\.endpoints/);
    });

    it.each([
      ['its schema', (): string => ''],
      ['it', (from: string, role: string) => `GRANT USAGE ON SCHEMA ${from} TO ${role}`],
    ])('names the table if the user may not read %s, and the GRANT', async (_, grant) => {
      const { pool } = database;
      const [from, role] = [database.newSchema(), database.newSchema()];
      await pool.query(`${officialTable(from)}; CREATE ROLE ${role} LOGIN PASSWORD 'of-a-role';
        GRANT USAGE ON SCHEMA ${schema} TO ${role};
        GRANT SELECT ON ALL TABLES IN SCHEMA ${schema} TO ${role}; ${grant(from, role)}`);
      const url = Object.assign(new URL(DATABASE_URL), { username: role, password: 'of-a-role' });
      const { code, err } = await imported(['nestjs', '--from-schema', from], undefined, {
        DATABASE_URL: url.href,
      });
      await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);

      expect(code).toBe(2);
      expect(err).toMatch(
        `The user cannot read the table ${from}.endpoints: have its owner run ` +
          `GRANT USAGE ON SCHEMA ${from} TO <user>; GRANT SELECT ON ${from}.endpoints TO <user>;\n`,
      );
    });

    it('says which column is missing', async () => {
      const from = database.newSchema();
      await database.pool.query(officialTable(from));
      await insert(from, 'ep_1', [secretOf(SVIX_SECRET)]);
      await database.pool.query(`ALTER TABLE ${from}.endpoints DROP COLUMN id`);
      const { endpoints } = await reported(['nestjs', '--from-schema', from], undefined);

      expect(endpoints).toMatchObject([
        { result: 'invalid', problems: ['id: is missing; add it to the export'] },
      ]);
    });
  });
});
