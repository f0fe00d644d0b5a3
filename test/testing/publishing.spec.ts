import { generateKeyPairSync } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable, type INestApplication, Module } from '@nestjs/common';
import { Test, type TestingModule, type TestingModuleBuilder } from '@nestjs/testing';
import { WebhookQueue } from 'nestjs-webhook-token/ports';
import {
  defineEvents,
  InProcessQueue,
  KeyProvider,
  MemoryReplayStore,
  OnWebhookEvent,
  type WebhookConfigurationError,
  WebhookDeliveries,
  WebhookEndpoints,
  type WebhookEvent,
  type WebhookIssuer,
  WebhookModule,
  type WebhookModuleOptions,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { securityEvents } from 'nestjs-webhook-token/senders';
import {
  deliverWebhook,
  flushDeliveries,
  InMemoryWebhookTransport,
  overrideWebhooks,
  TestClock,
} from '../../lib/testing/index.js';
import { JwksServer } from '../fixtures/jwks-server.js';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';
import { TokenEndpoint } from '../sending/token-endpoint.js';

const sender = { issuer: ISSUER, secret: SECRET };
const CRM = 'https://crm.example/hooks';
const ERP = 'https://erp.example/hooks';

/** A queue and a store of a server that no test can reach. */
const unreachable = (): never => {
  throw new Error('a test must not use the real queue or store');
};
class RealQueue extends WebhookQueue {
  override readonly durable = true;
  override readonly shared = true;
  override readonly transactional = true;
  override enqueue = unreachable;
  override consume = unreachable;
  override find = unreachable;
  override list = unreachable;
  override attempts = unreachable;
  override counts = unreachable;
  override prune = unreachable;
  override erase = unreachable;
  override redeliver = unreachable;
  override skip = unreachable;
  override stop = unreachable;
}
class RealStore extends MemoryReplayStore {
  override check = unreachable;
  override reserve = unreachable;
  override commitWith = unreachable;
}

@Injectable()
class Orders {
  readonly seen: unknown[] = [];
  failures = 0;

  @OnWebhookEvent('order.*', { receiver: 'queued' })
  on(data: unknown): void {
    if (this.failures-- > 0) throw new Error('not yet');
    this.seen.push(data);
  }

  @OnWebhookEvent('payment.*', { receiver: 'default' })
  async onPayment(data: unknown, event: WebhookEvent): Promise<void> {
    await event.commit({});
    this.seen.push(data);
  }
}

@Module({
  imports: [
    WebhookModule.forRootAsync({
      useFactory: () => ({
        publisher: {
          ...sender,
          queue: new RealQueue(),
          retry: { jitter: 0, attempts: 4 },
          endpoints: [
            { id: 'crm', url: CRM, events: ['order.*'] },
            { id: 'erp', url: ERP, events: ['order.*'], method: 'POST' },
          ],
        },
        receiver: [
          { path: 'webhooks', issuers: [sender], replay: { store: new RealStore() } },
          {
            name: 'queued',
            path: 'queued',
            issuers: [sender],
            replay: { store: new RealStore() },
            acknowledge: 'queued',
            queue: new RealQueue(),
            retry: { jitter: 0 },
          },
        ],
      }),
    }),
  ],
  providers: [Orders],
})
class AppModule {}

let app: INestApplication;
let publisher: WebhookPublisher;
let transport: InMemoryWebhookTransport;
let clock: TestClock;
beforeEach(async () => {
  transport = new InMemoryWebhookTransport();
  clock = new TestClock();
  const builder = Test.createTestingModule({ imports: [AppModule] });
  const testing = await overrideWebhooks(builder, { transport, clock }).compile();
  app = testing.createNestApplication({ logger: false });
  await app.init();
  publisher = app.get(WebhookPublisher);
});
afterEach(() => app.close());

describe('overrideWebhooks', () => {
  it('replaces queues, stores and HTTP of an application, and keeps its options', async () => {
    await publisher.publish('order.created', { id: 'o1' });
    await flushDeliveries(app);

    expect(transport.sent.map(({ url }) => url).toSorted()).toEqual([CRM, ERP]);
  });

  it.each([
    ['application/json-seq', Buffer.from('{"a":1}')],
    ['model/gltf+json', { a: 1 }],
    ['Application/JSON', { a: 1 }],
  ])('captures the data of %s as a receiver gets it', async (contentType, data) => {
    await publisher.publish('order.created', Buffer.from('{"a":1}'), { contentType });
    await flushDeliveries(app);

    expect(transport.single({ url: ERP }).data).toEqual(data);
  });

  it('accepts the transactions that the real queue and store would join', async () => {
    const { deliveries } = await publisher.publish('order.created', {}, { tx: {} });
    const once = { ...sender, receiver: 'default', id: 'p1' };

    expect(deliveries).toHaveLength(2);
    expect(await deliverWebhook(app, 'payment.paid', {}, once)).toMatchObject({ status: 204 });
    expect((await deliverWebhook(app, 'payment.paid', {}, once)).outcome).toBe('duplicate');
  });

  it('joins no transaction that the real queue and store could not join', async () => {
    @Injectable()
    class Payments {
      @OnWebhookEvent('payment.paid')
      async on(_: unknown, event: WebhookEvent): Promise<void> {
        await event.commit({});
      }
    }
    const queue = new InProcessQueue();
    const options = {
      receiver: { path: 'webhooks', issuers: [sender] },
      publisher: { ...sender, queue, endpoints: [{ id: 'crm', url: CRM }] },
    };
    const imports = [WebhookModule.forRoot(options)];
    const builder = Test.createTestingModule({ imports, providers: [Payments] });
    const testing = await overrideWebhooks(builder).compile();
    const plain = testing.createNestApplication({ logger: false });
    const answer = await deliverWebhook(plain, 'payment.paid', {}, sender);
    const published = plain.get(WebhookPublisher).publish('order.created', {}, { tx: {} });

    await expect(published).rejects.toThrow('The queue cannot join a transaction');
    expect(answer).toMatchObject({ status: 500, code: 'handler_failed' });
    await plain.close();
  });

  const receiver = { path: 'webhooks', issuers: [sender] };
  it.each<[string, unknown]>([
    ['receiver.queue', { receiver: { ...receiver, acknowledge: 'queued' } }],
    ['receiver[0].replay.store', { receiver: [{ ...receiver, replay: { store: 'redis' } }] }],
    ['receiver[0]', { receiver: [null] }],
    ['publisher.queue', { publisher: { ...sender, queue: 'redis' } }],
    ['publisher.endpointStore', { publisher: { ...sender, endpointStore: 'postgres' } }],
    ['inbox.store', { receiver, inbox: { store: 'postgres' } }],
    ['WebhookModule', undefined],
  ])('starts no application whose %s is wrong', async (path, options) => {
    const start = async (change: (builder: TestingModuleBuilder) => TestingModuleBuilder) => {
      const module = WebhookModule.forRootAsync({ useFactory: () => options as never });
      const builder = Test.createTestingModule({ imports: [module] });
      return change(builder)
        .compile()
        .catch(({ problems }: WebhookConfigurationError) => problems);
    };
    const problems = await start(overrideWebhooks);

    expect(problems).toEqual(await start((builder) => builder));
    expect(problems).toContainEqual(expect.objectContaining({ path }));
  });

  it('starts no application with a wrong example of an event', async () => {
    const validate = () => ({ issues: [{ message: 'no total' }] });
    const schema = { '~standard': { version: 1, vendor: 'test', validate } } as const;
    const events = defineEvents({ 'order.created': { schema, examples: [{}] } });

    await expect(overridden({ receiver, events })).rejects.toThrow(
      'examples[0]: is not valid data',
    );
  });

  const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const key = { kid: 'test', alg: 'ES256', key: pair.publicKey } as const;
  const signing = { issuer: ISSUER, key: { ...key, key: pair.privateKey } };
  const local = { allowHttp: true, allowPrivateNetworks: true };
  const overridden = async (
    options: WebhookModuleOptions,
    overrides: Parameters<typeof overrideWebhooks>[1] = {},
  ): Promise<INestApplication> => {
    const builder = Test.createTestingModule({ imports: [WebhookModule.forRoot(options)] });
    const testing = await overrideWebhooks(builder, overrides).compile();
    return testing.createNestApplication({ logger: false }).init();
  };

  it('closes at once while deliveries wait for a limit by a test clock', async () => {
    const testing = await overrideWebhooks(
      Test.createTestingModule({
        imports: [
          WebhookModule.forRoot({
            publisher: {
              issuer: ISSUER,
              secret: SECRET,
              endpoints: [{ id: 'crm', url: CRM, rateLimit: { perSecond: 1, burst: 1 } }],
              shutdownTimeout: '1h',
            },
          }),
        ],
      }),
      { clock: new TestClock() },
    ).compile();
    testing.useLogger(false);
    await testing.init();
    for (let n = 0; n < 3; n++) await testing.get(WebhookPublisher).publish('order.created', { n });

    expect(await flushDeliveries(testing)).toHaveLength(1);
    await testing.close();
    expect(await testing.get(WebhookDeliveries).stats()).toMatchObject({ pending: 2 });
  });

  it('fetches no events from a sender that is polled', async () => {
    const asked: string[] = [];
    const sender = securityEvents({
      issuer: ISSUER,
      audience: 'https://shop.example',
      secret: SECRET,
      poll: {
        url: 'https://idp.example/poll',
        authorization() {
          asked.push('poll');
          return 'Bearer of production';
        },
      },
    });
    const polling = await overridden({ receiver: { path: 'idp', sender } });
    await polling.close();

    expect(asked).toEqual([]);
  });

  it('sends a fixed access token, and no client secret to the token endpoint', async () => {
    const tokens = await TokenEndpoint.start();
    const oauth2 = { tokenUrl: tokens.url, clientId: 'shop', clientSecret: 'of production' };
    const endpoint = {
      id: 'crm',
      url: CRM,
      profile: 'standard-webhooks' as const,
      credentials: { oauth2 },
    };
    const sending = await overridden(
      { publisher: { ...sender, ...local, endpoints: [] } },
      { transport },
    );
    await sending.get(WebhookEndpoints).create(endpoint);
    const sent = await sending.get(WebhookPublisher).send('crm', 'order.created', { id: 'o1' });
    await Promise.all([sending.close(), tokens.stop()]);

    expect(sent.status).toBe('delivered');
    expect(tokens.requests).toEqual([]);
    expect(transport.single()).toMatchObject({
      token: '',
      event: 'order.created',
      headers: { Authorization: 'Bearer test-access-token' },
    });
  });

  class Provided extends KeyProvider<readonly WebhookIssuer[]> {
    constructor(public issuers: readonly WebhookIssuer[]) {
      super();
    }
    override async load(): Promise<readonly WebhookIssuer[]> {
      return this.issuers;
    }
  }

  it.each([
    ['listed', (issuer: WebhookIssuer) => [issuer]],
    ['provided', (issuer: WebhookIssuer) => new Provided([issuer])],
  ])('verifies with the key of the test, and fetches no key set: issuers %s', async (_, create) => {
    const server = await JwksServer.start([], false);
    const issuers = create({ issuer: ISSUER, jwksUri: server.uri });
    const options = { receiver: { path: 'webhooks', issuers, jwksFetch: local } };
    const knowing = await overridden(options, { issuerKeys: { [ISSUER]: [key] } });
    const other = await overridden(options);
    const answers = await Promise.all(
      [knowing, other].map((one) => deliverWebhook(one, 'order.created', {}, signing)),
    );
    await Promise.all([knowing.close(), other.close(), server.close()]);

    expect(answers.map(({ status }) => status)).toEqual([204, 401]);
    expect(server.hits).toBe(0);
  });

  it('follows a provider of issuers', async () => {
    const provider = new Provided([]);
    provider.issuers = [{ issuer: 'https://other.example', secret: SECRET }];
    const receiving = await overridden({ receiver: { path: 'webhooks', issuers: provider } });
    provider.issuers = [sender];
    await provider.refresh();
    const answer = await deliverWebhook(receiving, 'order.created', {}, sender);
    await receiving.close();

    expect(answer.status).toBe(204);
  });
});

describe('a helper that initialises the application', () => {
  const event = ['order.created', { id: 'o1' }] as const;
  const queued = { ...sender, receiver: 'queued' };
  let testing: TestingModule;
  let own: INestApplication;
  beforeEach(async () => {
    const builder = Test.createTestingModule({ imports: [AppModule] });
    testing = await overrideWebhooks(builder).compile();
    own = testing.createNestApplication({ logger: false });
  });
  afterEach(() => own.close());

  it('does it once for concurrent deliveries and flushes', async () => {
    const outcomes = await Promise.all([
      deliverWebhook(own, ...event, queued),
      deliverWebhook(own, ...event, queued),
      flushDeliveries(own),
      flushDeliveries(testing),
    ]);

    expect(outcomes).toMatchObject([{ outcome: 'queued' }, { outcome: 'queued' }, [], []]);
  });

  it('does it once for an application and its testing module', async () => {
    await deliverWebhook(own, ...event, queued);

    expect(await flushDeliveries(testing)).toMatchObject([{ status: 'delivered' }]);
  });

  it('does it for neither if the application was initialised, or listens', async () => {
    await own.listen(0);
    await deliverWebhook(own, ...event, queued);

    expect(await flushDeliveries(testing)).toMatchObject([{ status: 'delivered' }]);
    expect(await flushDeliveries(own.select(AppModule))).toEqual([]);
    expect(await deliverWebhook(own, ...event, queued)).toMatchObject({ outcome: 'queued' });
  });

  it('names the remedy if only the testing module was initialised, which has no routes', async () => {
    await flushDeliveries(testing);

    await expect(deliverWebhook(own, ...event, queued)).rejects.toThrow(
      'call app.init() before flushDeliveries(testing)',
    );
  });
});

describe('flushDeliveries', () => {
  it('flushes the deliveries of all webhook modules', async () => {
    const featureOf = (name: string): { new (): object; publisher?: WebhookPublisher } => {
      class Feature {
        static publisher?: WebhookPublisher;
        constructor(publisher: WebhookPublisher) {
          Feature.publisher = publisher;
        }
      }
      Reflect.defineMetadata('design:paramtypes', [WebhookPublisher], Feature);
      const endpoints = [{ id: name, url: `https://${name}.example/hooks` }];
      const publisher = { ...sender, endpoints };
      Module({ imports: [WebhookModule.forRoot({ publisher, isGlobal: false })] })(Feature);
      return Feature as never;
    };
    const features = ['crm', 'erp'].map(featureOf);
    class Root {}
    Module({ imports: features })(Root);
    const transport = new InMemoryWebhookTransport();
    const builder = Test.createTestingModule({ imports: [Root] });
    const testing = await overrideWebhooks(builder, {
      transport,
      clock: new TestClock(),
    }).compile();
    transport.script('https://crm.example', 503, 204);
    for (const { publisher } of features) await publisher!.publish('order.created', { id: 'o1' });

    const attempts = await flushDeliveries(testing, { retries: true });
    await testing.close();

    const statuses = attempts.map(({ endpointId, status }) => `${endpointId} ${status}`);
    expect(statuses.sort()).toEqual(['crm delivered', 'crm scheduled', 'erp delivered']);
  });

  it('returns every attempt since the last flush', async () => {
    transport.script(ERP, 503);
    const { id, deliveries } = await publisher.publish('order.created', { id: 'o1' });
    const attempts = await flushDeliveries(app);

    expect(attempts).toHaveLength(2);
    expect(attempts).toContainEqual({
      id: deliveries[0]!.id,
      eventId: id,
      event: 'order.created',
      endpointId: 'crm',
      attempt: 1,
      status: 'delivered',
      statusCode: 204,
    });
    expect(attempts).toContainEqual(
      expect.objectContaining({
        endpointId: 'erp',
        status: 'scheduled',
        statusCode: 503,
        nextAttemptAt: new Date(clock.now() + 5_000),
      }),
    );
    expect(await flushDeliveries(app)).toEqual([]);
  });

  it('makes the retries that are due', async () => {
    transport.script(CRM, 'ECONNRESET', 204);
    await publisher.send('crm', 'order.created');
    await flushDeliveries(app);
    clock.set(clock.now() + 5_000);

    expect(await flushDeliveries(app)).toMatchObject([
      { endpointId: 'crm', attempt: 2, status: 'delivered' },
    ]);
  });

  it('makes all retries by moving the clock', async () => {
    transport.script(CRM, 503);
    transport.script(ERP, 503, 503, 204);
    await publisher.publish('order.created');
    const attempts = await flushDeliveries(app, { retries: true });
    const of = (endpoint: string): unknown[] =>
      attempts
        .filter(({ endpointId }) => endpointId === endpoint)
        .map(({ attempt, status }) => [attempt, status]);

    expect(of('erp')).toEqual([
      [1, 'scheduled'],
      [2, 'scheduled'],
      [3, 'delivered'],
    ]);
    expect(of('crm').at(-1)).toEqual([4, 'failed']);
  });

  it('sends all that waits for a rate limit, but nothing to a paused endpoint', async () => {
    const testing = await overrideWebhooks(
      Test.createTestingModule({
        imports: [
          WebhookModule.forRoot({
            publisher: {
              ...sender,
              retry: { jitter: 0 },
              endpoints: ['crm', 'erp', 'paused'].map((id) => ({
                id,
                url: `https://${id}.example`,
                rateLimit: { perSecond: 1, burst: 2 },
              })),
            },
          }),
        ],
      }),
      { transport, clock },
    ).compile();
    await testing.init();
    transport.script('https://erp.example', 503, 204);
    await testing.get(WebhookEndpoints).pause('paused');
    for (let n = 0; n < 5; n++) await testing.get(WebhookPublisher).publish('order.created', { n });
    const attempts = await flushDeliveries(testing, { retries: true });
    const pending = await testing.get(WebhookDeliveries).list({ status: 'pending' });

    expect(attempts.filter(({ status }) => status === 'delivered')).toHaveLength(10);
    expect(pending.deliveries.map(({ endpointId }) => endpointId)).toEqual(
      Array.from({ length: 5 }, () => 'paused'),
    );
    await testing.close();
  });

  it('runs the handlers of queued events, and their retries', async () => {
    app.get(Orders).failures = 2;
    const answer = await deliverWebhook(
      app,
      'order.created',
      { id: 'o1' },
      {
        ...sender,
        receiver: 'queued',
      },
    );
    const attempts = await flushDeliveries(app, { retries: true });

    expect(answer).toMatchObject({ status: 202, outcome: 'queued' });
    expect(attempts).toMatchObject([
      { receiver: 'queued', attempt: 1, status: 'scheduled', failureReason: 'handler_failed' },
      { receiver: 'queued', attempt: 2, status: 'scheduled' },
      { receiver: 'queued', attempt: 3, status: 'delivered' },
    ]);
    expect(app.get(Orders).seen).toEqual([{ id: 'o1' }]);
  });

  it('needs a TestClock to make retries', async () => {
    const builder = Test.createTestingModule({ imports: [AppModule] });
    const other = await overrideWebhooks(builder, {
      transport: new InMemoryWebhookTransport(503),
    }).compile();
    await other.init();
    await other.get(WebhookPublisher).publish('order.created');

    await expect(flushDeliveries(other, { retries: true })).rejects.toThrow(/TestClock/);
    await other.close();
  });
});

describe('InMemoryWebhookTransport', () => {
  it('returns the only request that matches', async () => {
    await publisher.publish('order.created', { id: 'o1' });
    await publisher.publish('order.paid', { id: 'o1' });
    await flushDeliveries(app);

    expect(transport.single({ event: '*.paid', url: CRM }).data).toEqual({ id: 'o1' });
    expect(transport.filter({ url: 'https://crm.example' })).toHaveLength(2);
    expect(transport.filter(({ method }) => method === 'POST')).toHaveLength(2);
    expect(() => transport.single({ event: 'order.paid' })).toThrow(
      /Expected one matching request, found 2; sent:\s+order\.created HEAD https:\/\/crm/,
    );
  });

  it.each([
    ['standard-webhooks' as const, ''],
    [['webhook-token', 'standard-webhooks'] as const, 'https://'],
  ])('reads and verifies a request of %s', async (profile, issuer) => {
    const transport = new InMemoryWebhookTransport();
    const secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`;
    const options = { issuer: ISSUER, secret, profile };
    const testing = await overrideWebhooks(
      Test.createTestingModule({ imports: [WebhookModule.forRoot({ publisher: options })] }),
      { transport },
    ).compile();
    await testing.init();
    await testing.get(WebhookPublisher).send(CRM, 'order.created', { id: 'o1' }, { id: 'evt_1' });
    const sent = transport.single({ event: 'order.created' });

    expect(sent).toMatchObject({ id: 'evt_1', method: 'POST', attempt: 1, data: { id: 'o1' } });
    expect(sent.claims.iss.startsWith(issuer)).toBe(true);
    expect(await sent.isSignedWith(secret)).toBe(true);
    expect(await sent.isSignedWith(`whsec_${Buffer.alloc(32, 2).toString('base64')}`)).toBe(false);
    await testing.close();
  });

  it('verifies a request with a key, of both methods', async () => {
    await publisher.publish('order.created', { id: 'o1' });
    await flushDeliveries(app);
    const [head, post] = ['https://crm', 'https://erp'].map((url) => transport.single({ url }));
    const other = 'another-secret-of-32-bytes-or-more-0002';

    expect(await head!.isSignedWith(SECRET)).toBe(true);
    expect(await post!.isSignedWith({ alg: 'HS256', key: SECRET })).toBe(true);
    expect(await head!.isSignedWith(other)).toBe(false);
    post!.body!.write('x');
    expect(await post!.isSignedWith(SECRET)).toBe(false);
  });

  it('verifies a request with the public key of its sender', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const other = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const key = { kid: 'k1', alg: 'ES256', key: privateKey } as const;
    const testing = await overrideWebhooks(
      Test.createTestingModule({
        imports: [WebhookModule.forRoot({ publisher: { issuer: ISSUER, keys: [key] } })],
      }),
      { transport },
    ).compile();
    await testing.init();
    await testing.get(WebhookPublisher).send(CRM, 'order.created');
    const sent = transport.single();

    expect(await sent.isSignedWith({ alg: 'ES256', key: publicKey })).toBe(true);
    expect(await sent.isSignedWith({ alg: 'ES256', key: other.publicKey })).toBe(false);
    await testing.close();
  });

  it('fails as a network does', async () => {
    transport.respondWith('ENOTFOUND');
    expect(await publisher.send('crm', 'order.created')).toMatchObject({
      status: 'scheduled',
      failureReason: 'dns',
    });
    transport.respondWith(() => Object.assign(new Error(), { code: 'ETIMEDOUT' }));
    expect(await publisher.send('crm', 'order.created')).toMatchObject({
      failureReason: 'timeout',
    });
  });

  it('counts the attempts of each event separately', async () => {
    transport.script('https://crm.example/', 500, { status: 204 });
    transport.script(CRM, 410);
    transport.script('https://crm.example/other', 204);
    expect((await publisher.send(CRM, 'order.created')).statusCode).toBe(410);
    const url = 'https://crm.example/any';
    expect((await publisher.send(url, 'order.created')).statusCode).toBe(500);
    expect((await publisher.send(url, 'order.created')).statusCode).toBe(500);
    await flushDeliveries(app, { retries: true });

    expect(transport.filter({ url }).map(({ attempt }) => attempt)).toEqual([1, 1, 2, 2]);
  });

  const requests = (id: string): unknown[] =>
    transport.filter({ id }).map(({ attempt, method }) => [attempt, method]);

  it('counts a HEAD and the POST that replaces it as one attempt', async () => {
    transport.script(CRM, 503, 405, 204);
    const { id } = await publisher.send('crm', 'order.created');
    await flushDeliveries(app, { retries: true });

    expect(requests(id)).toEqual([
      [1, 'HEAD'],
      [2, 'HEAD'],
      [2, 'POST'],
      [3, 'HEAD'],
    ]);
  });

  it('counts a retry by POST after an attempt by HEAD', async () => {
    transport.respondWith(503);
    const { id } = await publisher.send('crm', 'order.created');
    transport.respondWith(({ method }) => (method === 'HEAD' ? 405 : 204));
    await publisher.send('crm', 'order.paid');
    await flushDeliveries(app, { retries: true });

    expect(requests(id)).toEqual([
      [1, 'HEAD'],
      [2, 'POST'],
    ]);
  });
});
