import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { Controller, Get } from '@nestjs/common';
import { HealthCheck, HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { Pool } from 'pg';
import { PostgresEndpointStore, PostgresQueue } from 'nestjs-webhook-token/postgres';
import { TestClock } from 'nestjs-webhook-token/testing';
import { WebhookHealthIndicator } from 'nestjs-webhook-token/health';
import {
  WebhookModule,
  WebhookStoreError,
  WebhookPublisher,
  WebhookVerifier,
  InProcessQueue,
  MemoryReplayStore,
  OnWebhookEvent,
  type WebhookModuleOptions,
} from 'nestjs-webhook-token';
import { jwtSender, securityEvents } from 'nestjs-webhook-token/senders';
import { adapters, createExpress } from '../fixtures/adapters.js';
import { EventTransmitter } from '../fixtures/event-transmitter.js';
import { Gate } from '../fixtures/gate.js';
import { head, send } from '../fixtures/http-client.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  signed,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { storeIn, TestDatabase } from '../postgres/database.js';

const CREDENTIAL = 'postgres://user:hidden@db';

let limits: Parameters<WebhookHealthIndicator['check']>[1];

@Controller('health')
class HealthController {
  constructor(
    private readonly health: HealthCheckService,
    private readonly webhooks: WebhookHealthIndicator,
  ) {}

  @Get()
  @HealthCheck()
  check() {
    return this.health.check([() => this.webhooks.check('webhooks', limits)]);
  }
}

class FailingStore extends MemoryReplayStore {
  failure: Error | undefined;

  override async check(): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
  }
}

class SilentQueue extends InProcessQueue {
  override async skip(): Promise<never> {
    return new Promise(() => undefined);
  }
}

class UnreadableQueue extends InProcessQueue {
  override async counts(): Promise<never> {
    throw new TypeError(CREDENTIAL);
  }
}

const publisher = (
  more: Partial<WebhookModuleOptions['publisher']> = {},
): WebhookModuleOptions['publisher'] => ({
  issuer: ISSUER,
  secret: SECRET,
  endpoints: [{ id: 'crm', url: 'https://crm.example/hooks', events: ['**'] }],
  ...more,
});

describe.each(adapters)('the health indicator on %s', (_, createAdapter) => {
  let started: StartedApp | undefined;
  let jwks: JwksServer | undefined;
  afterEach(async () => {
    await started?.app.close();
    await jwks?.close();
    [started, jwks] = [undefined, undefined];
  });

  async function start(
    options: WebhookModuleOptions,
    imports: unknown[] = [],
  ): Promise<StartedApp> {
    limits = {};
    started = await startApp(createAdapter(), {
      options,
      imports: [TerminusModule.forRoot({ logger: false }), ...imports],
      providers: [WebhookHealthIndicator],
      controllers: [HealthController],
    });
    return started;
  }

  async function health(): Promise<{
    status: number;
    webhooks: Record<string, unknown>;
    text: string;
  }> {
    const { status, json, text } = await send(started!.origin, { method: 'GET', path: '/health' });
    const { details } = json as { details: { webhooks: Record<string, unknown> } };
    return { status, webhooks: details.webhooks, text };
  }

  it('reports stores, queues and deliveries that work', async () => {
    await start({ ...receiverOptions(), publisher: publisher() });

    expect(await health()).toMatchObject({
      status: 200,
      webhooks: {
        status: 'up',
        checks: {
          'receiver "default".replay.store': 'up',
          'publisher.endpointStore': 'up',
          'publisher.queue': 'up',
          'publisher.deliveries': 'up',
        },
        lagMs: 0,
        pending: 0,
        dead: 0,
      },
    });
  });

  it('names a store that is down, without the message of its error', async () => {
    const store = new FailingStore();
    await start(receiverOptions({ replay: { store } }));
    const found = [];
    for (const failure of [
      new WebhookStoreError('store_unavailable', CREDENTIAL),
      new TypeError(CREDENTIAL),
    ]) {
      store.failure = failure;
      found.push(await health());
    }

    expect(found.map(({ status }) => status)).toEqual([503, 503]);
    expect(found.map(({ webhooks }) => webhooks['checks'])).toEqual([
      { 'receiver "default".replay.store': 'store_unavailable', 'inbox.store': 'up' },
      { 'receiver "default".replay.store': 'TypeError', 'inbox.store': 'up' },
    ]);
    expect(found.some(({ text }) => text.includes('hidden'))).toBe(false);
  });

  it('is down if a queue does not answer in time', async () => {
    await start({ publisher: publisher({ queue: new SilentQueue() }) });
    limits = { timeout: 20 };

    expect(await health()).toMatchObject({
      status: 503,
      webhooks: {
        status: 'down',
        checks: { 'publisher.queue': 'timeout', 'publisher.deliveries': 'up' },
      },
    });
  });

  it('reports deliveries that are later than the threshold, and stays up', async () => {
    const clock = new TestClock();
    const queue = new InProcessQueue({ clock: new TestClock() });
    const { app } = await start({ clock, publisher: publisher({ queue }) });
    await app.get(WebhookPublisher).publish('order.created', { id: 1 }, { delay: '1s' });
    await clock.advance(301_000);
    const atLimit = await health();
    await clock.advance(1);
    const late = await health();
    limits = { maxLag: '10m' };
    const tolerated = await health();

    const name = 'publisher.deliveries';
    expect([atLimit, late, tolerated].map(({ status }) => status)).toEqual([200, 200, 200]);
    expect([atLimit, tolerated].map(({ webhooks }) => webhooks['checks'])).toEqual([
      expect.objectContaining({ [name]: 'up' }),
      expect.objectContaining({ [name]: 'up' }),
    ]);
    expect(late.webhooks).toMatchObject({
      checks: { 'publisher.deliveries': 'late', 'publisher.queue': 'up' },
      lagMs: 300_001,
      pending: 1,
    });
  });

  it('reports queued events that are later than the threshold, and stays up', async () => {
    const clock = new TestClock(Date.now());
    const queue = new InProcessQueue({ clock, concurrencyPerDestination: 1 });
    const receiver = receiverOptions({ acknowledge: 'queued', queue });
    const gate = new Gate();
    class HangingOrders {
      @OnWebhookEvent('order.created')
      on(): Promise<void> {
        return gate.pass();
      }
    }
    const handlers = { module: class Orders {}, providers: [HangingOrders] };
    const { origin } = await start({ ...receiver, clock, publisher: publisher() }, [handlers]);
    await head(origin, signed());
    await gate.reached;
    await head(origin, signed());
    await clock.advance(300_000);
    const atLimit = await health();
    await clock.advance(1);
    const late = await health();
    gate.open();

    const name = 'receiver "default".events';
    expect([atLimit.status, late.status]).toEqual([200, 200]);
    expect(atLimit.webhooks).toMatchObject({ checks: { [name]: 'up' } });
    expect(late.webhooks).toMatchObject({
      checks: { [name]: 'late', 'receiver "default".queue': 'up', 'publisher.deliveries': 'up' },
      lagMs: 0,
      pending: 0,
    });
  });

  it('names the failure if the deliveries of another module are late', async () => {
    const clock = new TestClock();
    const queue = new InProcessQueue({ clock: new TestClock() });
    const late = { clock, publisher: publisher({ queue }), isGlobal: false };
    const failing = { publisher: publisher({ queue: new UnreadableQueue() }) };
    const { app } = await start(failing, [WebhookModule.forRoot(late)]);
    for (const each of app.get(WebhookPublisher, { each: true, strict: false })) {
      await each.publish('order.created', { id: 1 }, { delay: '1s' });
    }
    await clock.advance(301_001);

    expect(await health()).toMatchObject({
      status: 503,
      webhooks: { checks: { 'publisher.deliveries': 'TypeError' } },
    });
  });

  it.each([0, 1])(
    'reports the figures of all modules together, late in module %i',
    async (late) => {
      const clock = new TestClock();
      const options = (): WebhookModuleOptions => ({
        clock,
        publisher: publisher({ queue: new InProcessQueue({ clock: new TestClock() }) }),
      });
      const other = WebhookModule.forRoot({ ...options(), isGlobal: false });
      const { app } = await start(options(), [other]);
      const publishers = app.get(WebhookPublisher, { each: true, strict: false });
      await publishers[late]!.publish('order.created', { id: 1 }, { delay: '1s' });
      await clock.advance(7_000);
      await publishers[1 - late]!.publish('order.created', { id: 2 }, { delay: '1s' });

      expect((await health()).webhooks).toMatchObject({ lagMs: 6_000, pending: 2, dead: 0 });
    },
  );

  it('is down if the key set of a sender cannot be fetched', async () => {
    jwks = await JwksServer.start();
    const jwksFetch = { allowPrivateNetworks: true, ca: JWKS_CA, cooldown: 1 };
    const stream = { issuer: 'https://idp.example', audience: 'https://shop.example' };
    const options = { ...stream, jwksUri: jwks.uri, jwksFetch };
    const { origin } = await start({
      receiver: [
        { name: 'idp', path: 'idp', sender: securityEvents(options) },
        {
          name: 'both',
          path: 'both',
          issuers: [{ issuer: ISSUER, secret: SECRET }],
          sender: jwtSender({ ...options, name: 'acme', event: () => 'a' }),
        },
      ],
    });
    const before = await health();
    jwks.answer(500);
    const token = signed().replace(
      /^[^.]+/,
      Buffer.from('{"alg":"RS256","typ":"secevent+jwt"}').toString('base64url'),
    );
    const headers = { 'content-type': 'application/secevent+jwt' };
    await send(origin, { path: '/idp', headers, body: token });
    const { host } = new URL(jwks.uri);
    // By the clock of the system: senders have no other.
    limits = { maxKeyAge: 1 };
    let after = await health();
    for (let checks = 0; after.status === 200 && checks < 100; checks++) after = await health();

    expect(before.webhooks.checks).toMatchObject({
      [`receiver "idp": keys at ${host}`]: 'up',
      [`receiver "both": keys at ${host}`]: 'up',
    });
    expect(after.status).toBe(503);
    expect(after.webhooks.checks).toMatchObject({ [`receiver "idp": keys at ${host}`]: 'stale' });
  });

  it('fetches a failing key set again without a webhook, and is down only after maxKeyAge', async () => {
    const clock = new TestClock();
    jwks = await JwksServer.start();
    jwks.answer(500);
    const receiver = receiverOptions({
      issuers: [{ issuer: ISSUER, jwksUri: jwks.uri }],
      jwksFetch: { allowPrivateNetworks: true, ca: JWKS_CA },
    });
    const { origin } = await start({ ...receiver, clock });
    const unused = [(await health()).status, jwks.hits];
    await head(origin, signed());
    await clock.advance(3_600_000);
    const failing = await health();
    await clock.advance(1);
    const stale = await health();
    jwks.publish([]);
    let after = stale;
    for (let checks = 0; after.status !== 200 && checks < 100; checks++) {
      await clock.advance(60_000);
      after = await health();
    }

    expect(unused).toEqual([200, 0]);
    expect([failing, stale, after].map(({ status }) => status)).toEqual([200, 503, 200]);
    expect(stale.webhooks.checks).toMatchObject({
      [`receiver "default": keys at ${new URL(jwks.uri).host}`]: 'stale',
    });
  });

  it('reports polled events that cannot be fetched for longer than the threshold, and stays up', async () => {
    const clock = new TestClock(Date.parse('2026-11-24T10:00:00Z'));
    const transmitter = await EventTransmitter.start();
    const sender = securityEvents({
      issuer: 'https://idp.example',
      audience: 'https://shop.example',
      secret: SECRET,
      poll: { url: transmitter.url, allowHttp: true, allowPrivateNetworks: true },
    });
    await start({ receiver: { name: 'idp', sender }, clock });
    const failed = async (): Promise<void> => {
      (await transmitter.next()).fail(401, {}, CREDENTIAL);
      const { polls } = transmitter;
      while (transmitter.polls === polls) await clock.advance(100);
    };
    const { host } = new URL(transmitter.url);
    const name = `receiver "idp": events at ${host}`;
    const failing = {
      [name]: { since: '2026-11-24T10:00:00.000Z', reason: 'the answer has status 401' },
    };
    const before = await health();
    await failed();
    const degraded = await health();
    while (clock.now() <= Date.parse('2026-11-24T10:05:00Z')) await failed();
    const late = await health();
    limits = { maxLag: '1h' };
    const tolerated = await health();
    const held = await transmitter.next();
    const { polls } = transmitter;
    held.answer();
    while (transmitter.polls === polls) await clock.advance(100);
    const after = await health();
    // First the transmitter, which would hold the last request.
    await transmitter.close();

    expect([before, degraded, late, tolerated, after].map(({ status }) => status)).toEqual([
      200, 200, 200, 200, 200,
    ]);
    expect(before.webhooks).not.toHaveProperty('failing');
    expect(degraded.webhooks).toMatchObject({ checks: { [name]: 'up' }, failing });
    expect(late.webhooks).toMatchObject({ checks: { [name]: 'late' }, failing });
    expect(tolerated.webhooks).toMatchObject({ checks: { [name]: 'up' }, failing });
    expect(late.text).not.toMatch(/hidden|stream=s1/);
    expect(after.webhooks).not.toHaveProperty('failing');
  });

  it('is down while the application shuts down, when webhooks are refused', async () => {
    const { app } = await start({ ...receiverOptions(), publisher: publisher() });
    const gate = new Gate();
    const headers = { authorization: `Bearer ${signed()}` };
    const handled = app
      .get(WebhookVerifier)
      .verify({ method: 'HEAD', headers }, { handle: () => gate.pass() });
    await gate.reached;
    const before = await health();
    const closing = app.close();
    let during = await health();
    for (let checks = 0; during.webhooks['status'] === 'up' && checks < 100; checks++) {
      during = await health();
    }
    const refused = await head(started!.origin, signed());
    gate.open();
    await Promise.all([handled, closing]);

    expect([before.status, during.status, refused.status]).toEqual([200, 503, 503]);
    expect(before.webhooks['checks']).not.toHaveProperty('application');
    expect(during.webhooks).toMatchObject({
      status: 'down',
      checks: { application: 'shutting_down' },
    });
  });

  it('gives the code of an error as the reason of a stream that fails, not its message', async () => {
    const sender = securityEvents({
      issuer: 'https://idp.example',
      audience: 'https://shop.example',
      secret: SECRET,
      poll: {
        url: 'https://idp.example/poll',
        authorization: () => {
          throw new WebhookStoreError('store_unavailable', CREDENTIAL);
        },
      },
    });
    await start({ receiver: { name: 'idp', sender }, clock: new TestClock() });
    let found = await health();
    while (found.webhooks['failing'] === undefined) found = await health();

    expect(found.webhooks['failing']).toMatchObject({
      'receiver "idp": events at idp.example': { reason: 'store_unavailable' },
    });
    expect(found.text).not.toContain('hidden');
  });

  it('is down if a key set is old and cannot be fetched', async () => {
    const clock = new TestClock();
    jwks = await JwksServer.start();
    const receiver = receiverOptions({
      issuers: [{ issuer: ISSUER, jwksUri: jwks.uri }],
      jwksFetch: { allowPrivateNetworks: true, ca: JWKS_CA },
    });
    const { origin } = await start({ ...receiver, clock });
    const name = `receiver "default": keys at ${new URL(jwks.uri).host}`;
    const unused = await health();
    await head(origin, signed());
    jwks.answer(500);
    await clock.advance(3_600_000);
    const old = await health();
    await clock.advance(1);
    await head(origin, signed());
    const stale = await health();

    expect([unused, old, stale].map(({ webhooks }) => webhooks['checks'])).toEqual([
      expect.objectContaining({ [name]: 'up' }),
      expect.objectContaining({ [name]: 'up' }),
      expect.objectContaining({ [name]: 'stale' }),
    ]);
    expect(stale.text).not.toContain('/keys');
  });
});

(await describeWith('PostgreSQL'))('the health indicator on PostgreSQL', () => {
  const database = new TestDatabase();
  const connectionString = urlOf('PostgreSQL');
  // As the connections to a server that has become a replica.
  const readOnly = new Pool({ connectionString, options: '-c default_transaction_read_only=on' });
  afterAll(async () => {
    await readOnly.end();
    await database.close();
  });

  it.each([
    ['up', 'up', database.pool],
    ['down', 'store_unavailable', readOnly],
  ] as const)('is %s if the check of each store is %s', async (status, result, pool) => {
    const schema = database.newSchema();
    const endpointStore = new PostgresEndpointStore(pool, storeIn(schema));
    await new PostgresEndpointStore(database.pool, { schema }).migrate();
    const { app } = await startApp(createExpress(), {
      options: {
        checkStores: false,
        publisher: publisher({
          queue: new PostgresQueue({ pool, schema, migrate: false }),
          endpointStore,
          sealingKeys: [{ id: 'a', key: Buffer.alloc(32, 1).toString('base64') }],
        }),
      },
      imports: [TerminusModule.forRoot({ logger: false })],
      providers: [WebhookHealthIndicator],
    });
    const found = await app.get(WebhookHealthIndicator).check('webhooks');
    await app.close();

    expect(found.webhooks).toMatchObject({
      status,
      checks: {
        'publisher.endpointStore': result,
        'publisher.queue': result,
        'publisher.deliveries': 'up',
      },
    });
  });
});

describe('WebhookHealthIndicator', () => {
  it('refuses unknown and wrong options', async () => {
    const indicator = new WebhookHealthIndicator(undefined as never, undefined as never);

    await expect(indicator.check('webhooks', { maxLags: 1 } as object)).rejects.toThrow('maxLag');
    await expect(indicator.check('webhooks', { timeout: 'soon' as '5s' })).rejects.toThrow(
      'timeout',
    );
  });
});
