import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import dns from 'node:dns';
import { verifyWebhookToken } from 'nestjs-webhook-token/token';
import type { EndpointChanges, WebhookPublisherOptions } from 'nestjs-webhook-token';
import { SecretSealer } from '../../lib/endpoints/secret-sealer.js';
import { sealCredentials } from '../../lib/endpoints/stored-credentials.js';
import { WebhookEndpoints } from '../../lib/endpoints/webhook.endpoints.js';
import { ScriptedEndpointStore } from '../fixtures/scripted-endpoint.store.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const sealingKeys = [{ id: 'first', key: 'the first sealing key of this test, 32 bytes' }];
const own = 'a secret that the receiver has already, 32 bytes';

let receiver: WireReceiver;
let store: ScriptedEndpointStore;
let bench: PublisherBench;
let endpoints: WebhookEndpoints;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  store = new ScriptedEndpointStore();
  await start();
});

afterEach(async () => {
  jest.restoreAllMocks();
  await bench.stop();
  await receiver.stop();
});

async function start(options: Partial<WebhookPublisherOptions> = {}): Promise<void> {
  bench = await PublisherBench.start({ endpointStore: store, sealingKeys, ...options });
  endpoints = bench.module.get(WebhookEndpoints);
}

async function restart(options: Partial<WebhookPublisherOptions> = {}): Promise<void> {
  await bench.stop();
  await start(options);
}

const publish = async (tenant?: string): Promise<string[]> => {
  const scope = tenant === undefined ? {} : { tenant };
  const { deliveries } = await bench.publisher.publish('order.created', { id: 7 }, scope);
  return deliveries.map(({ endpointId }) => endpointId).sort();
};

describe('create', () => {
  it('returns the secret once, and signs with it under its kid', async () => {
    const { endpoint, secret } = await endpoints.create({ url: receiver.url, id: 'crm' });
    await publish();
    await receiver.received(1);

    expect(Buffer.from(secret!, 'base64')).toHaveLength(32);
    expect(endpoint).toEqual({
      id: 'crm',
      url: receiver.url,
      events: ['**'],
      settings: {},
      keys: [{ kid: expect.any(String), signsFrom: new Date(bench.clock.now()) }],
      source: 'store',
      createdAt: new Date(bench.clock.now()),
      updatedAt: new Date(bench.clock.now()),
      version: 1,
    });
    const { header } = await verified(0, secret!);
    expect(header.kid).toBe(endpoint.keys[0]!.kid);
    expect(await endpoints.get('crm')).toEqual(endpoint);
  });

  it('does not return a secret that the caller passed', async () => {
    const created = await endpoints.create({ url: receiver.url, secret: own });
    await publish();
    await receiver.received(1);

    expect(created.secret).toBeUndefined();
    await expect(verified(0, own)).resolves.toBeDefined();
  });

  it("signs with the publisher's key if signing is 'publisher'", async () => {
    const created = await endpoints.create({ url: receiver.url, signing: 'publisher', id: 'crm' });
    await publish();
    await receiver.received(1);

    expect([created.secret, created.endpoint.keys]).toEqual([undefined, []]);
    expect(receiver.requests[0]!.token.split('.')[0]).not.toContain('kid');
    await expect(endpoints.rotateKey('crm')).rejects.toMatchObject({ code: 'unsupported_option' });
  });

  it('sends with the settings of the endpoint', async () => {
    await endpoints.create({
      url: receiver.url,
      headers: { 'X-Shop': 'a' },
      audience: 'https://crm.example',
      method: 'POST',
      timeout: '2s',
      metadata: { plan: 'gold' },
      description: 'The CRM',
    });
    await publish();
    await receiver.received(1);

    const [request] = receiver.requests;
    expect(request!.method).toBe('POST');
    expect(request!.headers).toContainEqual(['X-Shop', 'a']);
    expect(request!.claims.aud).toBe('https://crm.example');
    const { endpoints: all } = await endpoints.list();
    expect(all[0]).toMatchObject({
      description: 'The CRM',
      metadata: { plan: 'gold' },
      settings: { timeout: 2_000 },
    });
  });

  it('lists every error by name, with a suggestion for a misspelt option', async () => {
    const wrong = {
      id: 'https://crm.example',
      url: 'http://10.0.0.1/hooks',
      events: ['order created'],
      tennant: 'acme',
      secret: 'short',
      metadata: { plan: 7 },
      headers: { Authorization: 'x' },
      timeout: 'soon',
    };
    const error = await endpoints.create(wrong as never).catch((e: unknown) => e);

    expect(error).toMatchObject({ code: 'invalid_option' });
    const { problems, message } = error as { problems: { path: string }[]; message: string };
    expect(problems.map(({ path }) => path).sort()).toEqual(
      [
        'events[0]',
        'headers["Authorization"]',
        'id',
        'metadata',
        'secret',
        'tennant',
        'timeout',
        'url',
      ].sort(),
    );
    expect(message).toContain('did you mean "tenant"?');
    expect(message).not.toContain('short');
    expect(await store.list({ limit: 2 })).toHaveLength(0);
  });

  it.each([
    'http://10.0.0.1/',
    'http://169.254.169.254/latest',
    'http://[::1]/',
    'ftp://a.example',
  ])('refuses %s, as the egress guard does', async (url) => {
    await expect(endpoints.create({ url })).rejects.toMatchObject({ code: 'destination_blocked' });
    expect(await store.list({ limit: 2 })).toHaveLength(0);
  });

  it('refuses a host that resolves to a private address, and accepts one that does not resolve', async () => {
    const lookup = jest.spyOn(dns, 'lookup');
    lookup.mockImplementation(((_host: string, _options: object, done: Function) =>
      done(null, [{ address: '10.0.0.1', family: 4 }])) as never);
    await expect(endpoints.create({ url: 'https://inside.example' })).rejects.toMatchObject({
      code: 'destination_blocked',
    });
    await endpoints.create({ url: receiver.url, id: 'crm' });
    await expect(endpoints.update('crm', { url: 'https://inside.example' })).rejects.toMatchObject({
      code: 'destination_blocked',
    });

    lookup.mockImplementation(((_host: string, _options: object, done: Function) =>
      done(new Error('ENOTFOUND'))) as never);
    await expect(endpoints.create({ url: 'https://later.example' })).resolves.toBeDefined();
  });

  it('accepts an id once, and not that of a configured endpoint', async () => {
    await restart({ endpoints: [{ id: 'configured', url: receiver.url }] });
    await endpoints.create({ id: 'crm', url: receiver.url });

    for (const id of ['crm', 'configured']) {
      await expect(endpoints.create({ id, url: receiver.url })).rejects.toMatchObject({
        code: 'endpoint_exists',
      });
    }
  });

  it('warns once that the store is in memory', async () => {
    await endpoints.create({ url: receiver.url });
    await endpoints.create({ url: receiver.url });

    const lines = bench.logs('log').filter((line) => line.includes('stored in memory'));
    expect(lines).toHaveLength(1);
  });

  it.each([
    ['id', '.'],
    ['id', '..'],
    ['tenant', '.'],
    ['tenant', '..'],
  ])(
    'refuses the %s %s, which browsers drop from the paths of the console',
    async (name, value) => {
      await expect(endpoints.create({ url: receiver.url, [name]: value })).rejects.toMatchObject({
        code: 'invalid_option',
        problems: [expect.objectContaining({ path: name })],
      });
    },
  );
});

describe('tenants', () => {
  beforeEach(async () => {
    await endpoints.create({ id: 'acme', url: receiver.url, tenant: 'acme' });
    await endpoints.create({ id: 'other', url: receiver.url, tenant: 'other' });
    await endpoints.create({ id: 'none', url: receiver.url });
  });

  it('receive only their own events', async () => {
    expect(await publish('acme')).toEqual(['acme']);
    expect(await publish('other')).toEqual(['other']);
    expect(await publish()).toEqual(['none']);
    expect(await publish('nobody')).toEqual([]);
  });

  it('receive only their own events from a store that mixes tenants up', async () => {
    jest.spyOn(store, 'subscribed').mockImplementation(async () => store.list({ limit: 10 }));

    expect(await publish('acme')).toEqual(['acme']);
    expect(await publish()).toEqual(['none']);
  });

  const scope = { tenant: 'acme' };
  it.each<[string, (id: string) => Promise<unknown>]>([
    ['get', (id) => endpoints.get(id, scope)],
    ['update', (id) => endpoints.update(id, { description: 'mine' }, scope)],
    ['delete', (id) => endpoints.delete(id, scope)],
    ['disable', (id) => endpoints.disable(id, scope)],
    ['enable', (id) => endpoints.enable(id, scope)],
    ['pause', (id) => endpoints.pause(id, scope)],
    ['resume', (id) => endpoints.resume(id, scope)],
    ['rotateKey', (id) => endpoints.rotateKey(id, {}, scope)],
    ['test', (id) => endpoints.test(id, scope)],
  ])('cannot %s an endpoint of another tenant, or find out that it exists', async (_, call) => {
    const before = await store.list({ limit: 10 });
    const refusals = await Promise.all(
      ['other', 'none', 'missing'].map((id) => call(id).catch((error: unknown) => error)),
    );

    for (const refusal of refusals) {
      expect(refusal).toMatchObject({ code: 'unknown_endpoint', message: messageOf(refusals[2]) });
    }
    expect(await store.list({ limit: 10 })).toEqual(before);
    expect(receiver.requests).toEqual([]);
  });

  it('list their own endpoints, those without a tenant, or all', async () => {
    const list = async (request?: Parameters<typeof endpoints.list>[0]): Promise<string[]> =>
      (await endpoints.list(request)).endpoints.map(({ id }) => id);

    expect(await list({ tenant: 'acme' })).toEqual(['acme']);
    expect(await list({ tenant: null })).toEqual(['none']);
    expect(await list()).toEqual(['acme', 'none', 'other']);
    const ofRequest = new (class {
      get tenant(): string {
        return 'acme';
      }
    })();
    expect(await list(ofRequest)).toEqual(['acme']);
  });

  it('receive an event only where one of their patterns matches it', async () => {
    const patterns = ['order.created', 'order.*', 'order.created.**', '*.created', '**'];
    const others = ['order.paid', 'orders.*', 'order.*.late', '*.paid', 'refund.**'];
    for (const events of [...patterns, ...others]) {
      await endpoints.create({
        id: events,
        url: receiver.url,
        tenant: 'initech',
        events: [events],
      });
    }

    expect(await publish('initech')).toEqual(patterns.sort());
    await endpoints.update('order.paid', { events: ['refund.paid', 'order.**.created'] });
    expect(await publish('initech')).toEqual([...patterns, 'order.paid'].sort());
  });

  it('are not all listed for an undefined tenant', async () => {
    const mistake = { tenant: undefined } as never;

    for (const call of [endpoints.list(mistake), endpoints.get('acme', mistake)]) {
      await expect(call).rejects.toMatchObject({ code: 'invalid_option' });
    }
  });

  it('cannot send to an endpoint of another tenant', async () => {
    const { publisher } = bench;
    for (const id of ['other', 'none']) {
      await expect(
        publisher.send(id, 'order.created', {}, { tenant: 'acme' }),
      ).rejects.toMatchObject({ code: 'unknown_endpoint' });
    }
    await expect(publisher.send('acme', 'order.created', {}, scope)).resolves.toMatchObject({
      status: 'delivered',
    });
    await expect(publisher.send('acme', 'order.created', {})).resolves.toMatchObject({
      status: 'delivered',
    });
  });

  it('do not inherit the deliveries of a deleted endpoint with the same id', async () => {
    receiver.script = () => ({ status: 500 });
    await publish('acme');
    await bench.reported(1);
    await endpoints.delete('acme');
    await endpoints.create({ id: 'acme', url: receiver.url, tenant: 'other' });
    await bench.clock.advance(5_000);
    await bench.reported(2);
    await bench.clock.advance(15 * MINUTE);
    await bench.reported(3);
    await bench.clock.advance(0);

    expect(await bench.dead()).toMatchObject([{ reason: 'unknown_endpoint' }]);
    expect(receiver.requests).toHaveLength(1);
  });
});

describe('update', () => {
  it('changes named members, removes those set to null, and leaves the rest', async () => {
    const settings = { subject: 'a', audience: 'b', description: 'c', metadata: { d: 'e' } };
    await endpoints.create({ id: 'crm', url: receiver.url, ...settings });
    const changed = await endpoints.update('crm', {
      events: ['refund.*'],
      subject: null,
      description: null,
      timeout: '1s',
    });

    expect(changed).toMatchObject({
      events: ['refund.*'],
      metadata: { d: 'e' },
      settings: { audience: 'b', timeout: 1_000 },
      version: 2,
    });
    expect(Object.keys(changed.settings).sort()).toEqual(['audience', 'timeout']);
    expect(changed.description).toBeUndefined();
    expect(await publish()).toEqual([]);
  });

  it.each([
    ['tenant', 'another'],
    ['id', 'another'],
    ['secret', own],
    ['disabled', true],
    ['url', null],
    ['events', []],
    ['timeout', 1e12],
    ['profil', 'swt-draft-02'],
  ])('refuses %s', async (name, value) => {
    await endpoints.create({ id: 'crm', url: receiver.url });

    await expect(endpoints.update('crm', { [name]: value })).rejects.toMatchObject({
      code: 'invalid_option',
      problems: [expect.objectContaining({ path: name })],
    });
  });

  it('merges concurrent changes, unless they change the same member', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    store.beforeReplace = () => endpoints.update('crm', { description: 'first' });
    await endpoints.update('crm', { events: ['order.*'] });
    expect(await endpoints.get('crm')).toMatchObject({ description: 'first', events: ['order.*'] });

    store.beforeReplace = () => endpoints.update('crm', { description: 'second' });
    await expect(endpoints.update('crm', { description: 'third' })).rejects.toMatchObject({
      code: 'endpoint_changed',
    });
    expect(await endpoints.get('crm')).toMatchObject({ description: 'second', version: 4 });
  });

  it('merges many concurrent changes', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    const changes: EndpointChanges[] = [
      { description: 'The CRM' },
      { metadata: { plan: 'gold' } },
      { events: ['order.*'] },
      { subject: 'crm' },
      { audience: 'crm' },
      { timeout: '5s' },
      { method: 'POST' },
      { hash: 'sha384' },
      { jti: 'delivery' },
      { onDead: 'block' },
      { concurrency: 3 },
      { rateLimit: { perSecond: 5 } },
      { filter: { data: { total: 1 } } },
      { headers: { 'X-Shop': 'a' } },
      { retry: { attempts: 3 } },
      { profile: 'swt-draft-02' },
    ];
    await Promise.all(changes.map(async (change) => endpoints.update('crm', change)));

    expect(await endpoints.get('crm')).toMatchObject({ version: 17, description: 'The CRM' });
  });

  it('binds no credentials to a URL that was set at the same time', async () => {
    const other = 'https://other.example/hooks';
    await endpoints.create({ id: 'crm', url: receiver.url });
    store.beforeReplace = () => endpoints.update('crm', { url: other });
    const credentials = { headers: { 'X-Api-Key': 'of the old URL' } };

    await expect(endpoints.update('crm', { credentials })).rejects.toMatchObject({
      code: 'endpoint_changed',
    });
    expect(await store.find('crm')).toMatchObject({ url: other, version: 2 });
    expect((await store.find('crm'))!.credentials).toBeUndefined();
  });

  it('changes no endpoint that was created under the same id meanwhile', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    store.beforeReplace = async () => {
      await endpoints.delete('crm');
      await bench.clock.advance(1);
      await endpoints.create({ id: 'crm', url: receiver.url });
    };

    await expect(endpoints.update('crm', { description: 'old' })).rejects.toMatchObject({
      code: 'endpoint_changed',
    });
    expect(await endpoints.get('crm')).toMatchObject({ description: undefined, version: 1 });
  });

  it('sends pending deliveries to the new URL, and drops the pause of the old one', async () => {
    const other = await WireReceiver.start();
    receiver.script = () => ({ status: 503, headers: { 'Retry-After': '86400' } });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    await endpoints.update('crm', { url: other.url });
    await publish();
    await other.received(1);

    expect(receiver.requests).toHaveLength(1);
    await bench.reported(2);
    await other.stop();
  });
});

describe('update in a store that orders the members of an endpoint in its own way', () => {
  it.each<[string, EndpointChanges]>([
    ['a description', { description: 'The CRM' }],
    ['metadata', { metadata: { plan: 'gold' } }],
    ['a rate limit', { rateLimit: { perSecond: 5 } }],
    ['headers', { headers: { 'X-Shop': 'a' } }],
  ])('keeps the pause and the acknowledged format when it adds %s', async (_, changes) => {
    store.readsRows = true;
    receiver.script = () =>
      receiver.requests.length === 1
        ? { status: 204 }
        : { status: 503, headers: { 'Retry-After': '86400' } };
    await endpoints.create({ id: 'crm', url: receiver.url, profile: 'swt-draft-02' });
    for (const count of [1, 2]) {
      await publish();
      await bench.reported(count);
    }
    const learnt = async (): Promise<unknown> => [
      (await endpoints.format('crm')).acknowledged,
      await endpoints.circuit('crm'),
    ];
    const before = await learnt();
    await endpoints.update('crm', changes);

    expect(before).toMatchObject([{ profile: 'swt-draft-02' }, { pausedUntil: expect.any(Date) }]);
    expect(await learnt()).toEqual(before);
  });
});

describe('an endpoint with limits whose receiver has asked to wait', () => {
  const limited = { id: 'crm', method: 'POST', concurrency: 1 } as const;

  beforeEach(() => {
    receiver.script = () =>
      receiver.requests.length === 1
        ? { status: 429, headers: { 'Retry-After': '86400' } }
        : { status: 204 };
  });

  async function publishTwo(): Promise<void> {
    await publish();
    await publish();
    await bench.reported(1);
    await bench.clock.advance(0);
    expect(receiver.requests).toHaveLength(1);
  }

  it('is sent to again once it is enabled', async () => {
    await endpoints.create({ ...limited, url: receiver.url });
    await publishTwo();
    await endpoints.enable('crm');
    await bench.reported(2);

    expect(bench.reports[1]!.outcome.type).toBe('delivered');
  });

  it('is sent to again once it is enabled, if it is configured', async () => {
    await restart({ endpoints: [{ ...limited, url: receiver.url }] });
    await publishTwo();
    await endpoints.enable('crm');
    await bench.reported(2);

    expect(bench.reports[1]!.outcome.type).toBe('delivered');
  });

  it('is sent to again once it has another URL', async () => {
    const other = await WireReceiver.start();
    await endpoints.create({ ...limited, url: receiver.url });
    await publishTwo();
    await endpoints.update('crm', { url: other.url });
    await other.received(1);
    await bench.reported(2);
    await other.stop();

    expect(bench.reports[1]!.outcome.type).toBe('delivered');
  });

  it('is sent to again once it is created again', async () => {
    await endpoints.create({ ...limited, url: receiver.url });
    await publishTwo();
    await endpoints.delete('crm');
    await endpoints.create({ ...limited, url: receiver.url });
    await publish();
    await receiver.received(2);
  });
});

describe('what waits for the limits of an endpoint', () => {
  const limited = { id: 'crm', method: 'POST', rateLimit: { perSecond: 0.001 } } as const;

  it('is given up once the endpoint is disabled', async () => {
    await endpoints.create({ ...limited, url: receiver.url });
    for (let count = 1; count <= 3; count++) await publish();
    await bench.reported(1);
    await endpoints.disable('crm');
    await bench.reported(3);

    const reasons = (await bench.dead()).map(({ reason }) => reason);
    expect(reasons).toEqual(['endpoint_disabled', 'endpoint_disabled']);
  });

  it('is given up once the endpoint has answered 410', async () => {
    receiver.script = () => ({ status: 410 });
    await endpoints.create({ ...limited, url: receiver.url });
    for (let count = 1; count <= 3; count++) await publish();
    await bench.reported(3);

    const dead = await bench.dead();
    expect(dead).toHaveLength(3);
    expect(dead.filter(({ reason }) => reason === 'endpoint_disabled')).toHaveLength(2);
  });

  it.each<[string, () => Promise<unknown>]>([
    ['they are removed', async () => endpoints.update('crm', { rateLimit: null })],
    [
      'the endpoint is created again without them',
      async () => {
        await endpoints.delete('crm');
        await endpoints.create({ id: 'crm', method: 'POST', url: receiver.url });
      },
    ],
  ])('starts when %s during an attempt', async (_, change) => {
    receiver.script = () => (receiver.requests.length === 1 ? 'hang' : { status: 204 });
    await endpoints.create({ ...limited, url: receiver.url });
    await publish();
    await receiver.received(1);
    await change();
    receiver.answerHeld({ status: 204 });
    await bench.reported(1);
    await publish();
    await publish();
    await bench.reported(3);

    expect(receiver.requests).toHaveLength(3);
  });

  it('is looked at once the endpoint is deleted', async () => {
    await endpoints.create({ ...limited, url: receiver.url });
    for (let count = 1; count <= 3; count++) await publish();
    await bench.reported(1);
    await endpoints.delete('crm');
    await bench.reported(3);

    expect(bench.reports[2]!.outcome).toMatchObject({ reason: 'unknown_endpoint' });
  });
});

describe("deliveries that wait for a dead one of their key (onDead: 'block')", () => {
  const publishInOrder = async (): Promise<void> => {
    const retry = { attempts: 1 };
    await endpoints.create({
      id: 'crm',
      url: receiver.url,
      method: 'POST',
      onDead: 'block',
      retry,
    });
    for (let n = 1; n <= 2; n++)
      await bench.publisher.publish('stock.changed', { n }, { orderingKey: 'sku-1' });
  };
  const blocking = async (): Promise<void> => {
    receiver.script = () => ({ status: receiver.requests.length === 1 ? 422 : 204 });
    await publishInOrder();
    await bench.reported(1);
  };

  it.each(['skip', null] as const)('are sent once it is %j', async (onDead) => {
    await blocking();
    await endpoints.update('crm', { description: 'no longer in order' });
    await bench.clock.advance(HOUR);
    expect(receiver.requests).toHaveLength(1);

    await endpoints.update('crm', { onDead });
    await bench.reported(2);
    expect(receiver.requests).toHaveLength(2);
  });

  it('are given up once the endpoint is deleted', async () => {
    await blocking();
    await bench.clock.advance(HOUR);
    await endpoints.delete('crm');
    await bench.reported(2);

    expect(bench.reports[1]!.outcome).toMatchObject({ type: 'dead', reason: 'unknown_endpoint' });
  });

  it('are given up once a call of delete is repeated that failed with the queue', async () => {
    await blocking();
    await bench.clock.advance(HOUR);
    jest.spyOn(bench.queue, 'list').mockRejectedValueOnce(new Error('The queue is down.'));
    await expect(endpoints.delete('crm')).rejects.toThrow('The queue is down.');
    await expect(endpoints.delete('crm')).rejects.toMatchObject({ code: 'unknown_endpoint' });
    await bench.reported(2);

    expect(bench.reports[1]!.outcome).toMatchObject({ type: 'dead', reason: 'unknown_endpoint' });
  });

  it.each<[string, () => Promise<unknown>]>([
    ['the endpoint is deleted', async () => endpoints.delete('crm')],
    ["onDead is 'skip'", async () => endpoints.update('crm', { onDead: 'skip' })],
    [
      'another process has deleted the endpoint',
      async () => {
        await store.remove('crm');
      },
    ],
  ])('do not wait if %s during its last attempt', async (_, change) => {
    receiver.script = () => (receiver.requests.length === 1 ? 'hang' : { status: 204 });
    await publishInOrder();
    await receiver.received(1);
    await change();
    receiver.answerHeld({ status: 422 });
    await bench.reported(1);
    expect(bench.reports[0]!.outcome).toEqual({ type: 'dead', reason: 'http_422', attempts: 1 });
    await bench.reported(2);
  });

  it('wait if the endpoint store fails during its last attempt', async () => {
    receiver.script = () => (receiver.requests.length === 1 ? 'hang' : { status: 204 });
    await publishInOrder();
    await receiver.received(1);
    store.down = true;
    receiver.answerHeld({ status: 422 });
    await bench.reported(1);

    expect(bench.reports[0]!.outcome).toMatchObject({ type: 'dead', blocksKey: true });
  });
});

describe('enable', () => {
  it('ends a pause, also when the limits were removed meanwhile', async () => {
    receiver.script = () =>
      receiver.requests.length === 1
        ? { status: 429, headers: { 'Retry-After': '86400' } }
        : { status: 204 };
    await endpoints.create({ id: 'crm', url: receiver.url, method: 'POST', concurrency: 1 });
    await publish();
    await publish();
    await bench.reported(1);
    await endpoints.update('crm', { concurrency: null });
    await endpoints.enable('crm');
    await publish();
    await bench.reported(3);

    expect(receiver.requests).toHaveLength(3);
  });
});

describe('delete', () => {
  it('gives pending deliveries up, which can be redelivered once the endpoint exists again', async () => {
    receiver.script = () => ({ status: 500 });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    await endpoints.delete('crm');
    await bench.clock.advance(5_000);
    await bench.reported(2);
    await bench.clock.advance(15 * MINUTE);
    await bench.reported(3);
    await bench.clock.advance(0);
    const [dead] = await bench.dead();
    expect(dead).toMatchObject({ reason: 'unknown_endpoint' });
    await expect(endpoints.get('crm')).rejects.toMatchObject({ code: 'unknown_endpoint' });

    const { length: before } = bench.reports;
    receiver.script = () => ({ status: 204 });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await bench.queue.redeliver([dead!.delivery.id]);
    await receiver.received(2);
    await bench.reported(before + 1);
    expect(bench.reports.at(-1)?.outcome.type).toBe('delivered');
  });
});

describe('disabled endpoints', () => {
  it('receive nothing until they are enabled', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    const disabled = await endpoints.disable('crm');
    expect(disabled.disabled).toEqual({ at: new Date(bench.clock.now()), reason: 'requested' });
    expect(await publish()).toEqual([]);

    const enabled = await endpoints.enable('crm');
    expect(enabled.disabled).toBeUndefined();
    expect(await publish()).toEqual(['crm']);
    await receiver.received(1);
  });

  it('are disabled for every process by a 410, and attempted again once enabled', async () => {
    receiver.script = () => ({ status: 410 });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    await bench.clock.advance(0);
    expect(await store.find('crm')).toMatchObject({ disabled: { reason: 'gone' } });
    expect(await publish()).toEqual([]);

    receiver.script = () => ({ status: 204 });
    await endpoints.enable('crm');
    expect(await publish()).toEqual(['crm']);
    await receiver.received(2);
  });

  it('are disabled without delaying the record of the attempt', async () => {
    let write = (): void => {};
    receiver.script = () => {
      store.beforeReplace = async () => new Promise<void>((resolve) => (write = resolve));
      return { status: 410 };
    };
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);

    expect(await bench.queue.list({ status: 'dead' }, { limit: 1 })).toHaveLength(1);
    expect(await store.find('crm')).not.toHaveProperty('disabled');
    write();
    await bench.stop();
    expect(await store.find('crm')).toMatchObject({ disabled: { reason: 'gone' } });
  });

  it('receive nothing from this process even if the store is down', async () => {
    receiver.script = () => {
      store.down = true;
      return { status: 410 };
    };
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    await bench.clock.advance(0);
    store.down = false;

    expect(await store.find('crm')).not.toHaveProperty('disabled');
    expect(await publish()).toEqual([]);
    const told = bench.logs('warn').filter((line) => line.includes('Storing that'));
    expect(told).toHaveLength(1);
  });

  it('are not disabled by an answer of their previous URL', async () => {
    receiver.script = () => 'hang';
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await receiver.received(1);
    await endpoints.update('crm', { url: `${receiver.url}/new` });
    receiver.answerHeld({ status: 410 });
    await bench.reported(1);
    receiver.script = () => ({ status: 204 });
    expect(await publish()).toEqual(['crm']);
    await bench.reported(2);
    await bench.stop();

    expect(await store.find('crm')).not.toHaveProperty('disabled');
  });

  it('are attempted again by every process that reads them as enabled', async () => {
    receiver.script = () => ({ status: 503, headers: { 'Retry-After': '86400' } });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    const kept = (await store.find('crm'))!;
    await store.replace({ ...kept, enabledAt: bench.clock.now(), version: kept.version + 1 });
    receiver.script = () => ({ status: 204 });
    await publish();
    await bench.reported(2);

    expect(bench.reports[1]!.outcome).toEqual({ type: 'delivered' });
  });
});

describe('rotateKey', () => {
  it('signs with the old key until the overlap is over, then with the new one alone', async () => {
    const created = await endpoints.create({ id: 'crm', url: receiver.url });
    const rotated = await endpoints.rotateKey('crm');
    expect(rotated.signsFrom).toEqual(new Date(bench.clock.now() + 24 * HOUR));

    await publish();
    await receiver.received(1);
    await bench.reported(1);
    await bench.clock.advance(24 * HOUR - 1);
    await publish();
    await receiver.received(2);
    await bench.reported(2);
    await bench.clock.advance(1);
    await publish();
    await receiver.received(3);
    await bench.reported(3);

    await expect(verified(0, created.secret!)).resolves.toBeDefined();
    await expect(verified(1, created.secret!)).resolves.toBeDefined();
    expect((await verified(2, rotated.secret!)).header.kid).toBe(rotated.kid);
    expect((await endpoints.get('crm')).keys).toHaveLength(2);
    const after = await endpoints.update('crm', { description: 'any change' });
    expect(after.keys).toEqual([{ kid: rotated.kid, signsFrom: rotated.signsFrom }]);
  });

  it('drops the old key immediately with an overlap of 0', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    const rotated = await endpoints.rotateKey('crm', { overlap: 0, secret: own });
    await publish();
    await receiver.received(1);

    expect(rotated.secret).toBeUndefined();
    expect((await verified(0, own)).header.kid).toBe(rotated.kid);
    expect((await store.find('crm'))!.keys).toHaveLength(1);
  });

  it('signs with the old key until the overlap is over, also if the clock was set back', async () => {
    const created = await endpoints.create({ id: 'crm', url: receiver.url });
    bench.clock.set(bench.clock.now() - HOUR);
    const rotated = await endpoints.rotateKey('crm', { overlap: '30m' });
    for (const [index, wait] of [0, HOUR / 2, HOUR].entries()) {
      await bench.clock.advance(wait);
      await publish();
      await receiver.received(index + 1);
      await bench.reported(index + 1);
    }

    await expect(verified(0, created.secret!)).resolves.toBeDefined();
    expect((await verified(1, rotated.secret!)).header.kid).toBe(rotated.kid);
    expect((await verified(2, rotated.secret!)).header.kid).toBe(rotated.kid);
  });

  it('keeps only the key of the last rotation', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await endpoints.rotateKey('crm', { overlap: '24h' });
    const last = await endpoints.rotateKey('crm', { overlap: '1h' });
    await bench.clock.advance(48 * HOUR);
    await publish();
    await receiver.received(1);

    expect((await verified(0, last.secret!)).header.kid).toBe(last.kid);
  });

  it('replaces the key of an endpoint in tandem, also if the store reads a new copy each time', async () => {
    store.readsRows = true;
    await endpoints.create({
      id: 'crm',
      url: receiver.url,
      profile: ['webhook-token', 'standard-webhooks'],
    });
    const { kid } = await endpoints.rotateKey('crm', { overlap: 0 });

    expect((await endpoints.get('crm')).keys.map((key) => key.kid)).toEqual([kid]);
  });

  it('refuses the later of two concurrent rotations', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    store.beforeReplace = () => endpoints.rotateKey('crm');

    await expect(endpoints.rotateKey('crm')).rejects.toMatchObject({ code: 'endpoint_changed' });
    expect((await store.find('crm'))!.keys).toHaveLength(2);
  });

  it('adds no key to an endpoint whose profile was changed at the same time', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    store.beforeReplace = () => endpoints.update('crm', { profile: 'standard-webhooks' });
    const secret = 'a secret that Standard Webhooks cannot use';

    await expect(endpoints.rotateKey('crm', { secret })).rejects.toMatchObject({
      code: 'endpoint_changed',
    });
    expect((await store.find('crm'))!.keys).toHaveLength(1);
  });
});

describe('limits', () => {
  const limited = { perTenant: 2, keys: 3, testsPerMinute: 2 };
  const reached = (message: RegExp): object => ({
    code: 'limit_reached',
    message: expect.stringMatching(message),
  });

  it('bound the endpoints of a tenant, not those of others or without a tenant', async () => {
    await restart({ endpointLimits: limited });
    const create = async (tenant?: string) =>
      endpoints.create({ url: receiver.url, ...(tenant !== undefined && { tenant }) });
    const { endpoint } = await create('acme');
    await create('acme');

    await expect(create('acme')).rejects.toMatchObject(reached(/has 2 endpoints.*delete one/));
    await expect(create('globex')).resolves.toBeDefined();
    for (let i = 0; i < 3; i++) await create();
    await endpoints.delete(endpoint.id);
    await expect(create('acme')).resolves.toBeDefined();
  });

  it('bound the concurrency and the rate that an endpoint may have', async () => {
    await restart({ endpointLimits: { concurrency: 5, perSecond: 20 } });
    const id = 'crm';
    await endpoints.create({ id, url: receiver.url, concurrency: 5, rateLimit: { perSecond: 20 } });

    await expect(endpoints.create({ url: receiver.url, concurrency: 6 })).rejects.toMatchObject(
      reached(/concurrency is 6.*5 at most.*endpointLimits\.concurrency/),
    );
    const rateLimit = { perSecond: 21 };
    await expect(endpoints.update(id, { rateLimit })).rejects.toMatchObject(
      reached(/rateLimit\.perSecond is 21.*20 at most.*endpointLimits\.perSecond/),
    );
    await endpoints.update(id, { concurrency: null, rateLimit: { perSecond: 0.5, burst: 2 } });
    expect((await endpoints.get(id)).settings).toEqual({ rateLimit: { perSecond: 0.5, burst: 2 } });
  });

  it('bound the endpoints of a tenant that are created at the same time, and refuse only those over it', async () => {
    await restart({ endpointLimits: limited });
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, async () =>
        endpoints.create({ url: receiver.url, tenant: 'acme' }),
      ),
    );

    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
    expect(await store.count('acme')).toBe(2);
  });

  it('bound the endpoints of a tenant that two processes create at the same time', async () => {
    await restart({ endpointLimits: limited });
    const other = await PublisherBench.start({
      endpointStore: store,
      sealingKeys,
      endpointLimits: limited,
    });
    await Promise.allSettled(
      [endpoints, other.module.get(WebhookEndpoints)].flatMap((all) =>
        Array.from({ length: 5 }, async () => all.create({ url: receiver.url, tenant: 'acme' })),
      ),
    );
    await other.stop();

    expect(await store.count('acme')).toBeLessThanOrEqual(2);
  });

  it('bound the keys of an endpoint, and say when it can be rotated again', async () => {
    await restart({ endpointLimits: limited });
    await endpoints.create({ id: 'crm', url: receiver.url });
    const first = await endpoints.rotateKey('crm', { overlap: '1h' });
    await endpoints.rotateKey('crm', { overlap: '2h' });

    await expect(endpoints.rotateKey('crm')).rejects.toMatchObject(
      reached(new RegExp(`has 3 keys.*after ${first.signsFrom.toISOString()}`)),
    );
    expect((await endpoints.get('crm')).keys).toHaveLength(3);
    await bench.clock.advance(HOUR);
    await expect(endpoints.rotateKey('crm')).resolves.toBeDefined();
    await endpoints.rotateKey('crm', { overlap: 0 });
    expect((await endpoints.get('crm')).keys).toHaveLength(1);
  });

  it('allow at most 4 keys by default, however often an endpoint is rotated', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    const rotations = [];
    for (let i = 0; i < 20; i++) {
      rotations.push(
        ...(await Promise.allSettled([endpoints.rotateKey('crm', { overlap: HOUR + i })])),
      );
    }

    expect(rotations.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
    expect((await store.find('crm'))!.keys).toHaveLength(4);
  });

  it('bound the test events of an endpoint in a minute', async () => {
    await restart({ endpointLimits: limited });
    for (const id of ['crm', 'erp']) await endpoints.create({ id, url: receiver.url });
    await endpoints.test('crm');
    await endpoints.test('crm');

    await expect(endpoints.test('crm')).rejects.toMatchObject(reached(/again in 60 s/));
    await endpoints.update('crm', { url: `${receiver.url}?other` });
    await expect(endpoints.test('crm')).rejects.toMatchObject(reached(/tested 2 times/));
    await expect(endpoints.test('erp')).resolves.toMatchObject({ delivered: true });
    await bench.clock.advance(60_000);
    await expect(endpoints.test('crm')).resolves.toMatchObject({ delivered: true });
    expect(receiver.requests).toHaveLength(4);
  });
});

describe('sealing', () => {
  const next = { id: 'next', key: 'the next sealing key of this test, 32 bytes!' };

  it('shows no secret in the store, in inspected objects, in logs and in errors', async () => {
    const credential = 'a credential of a header';
    const headers = { 'X-Api-Key': credential };
    const target = { id: 'crm', url: receiver.url, tenant: 'acme', headers };
    const { secret } = await endpoints.create(target);
    await endpoints.rotateKey('crm', { secret: own });
    await publish('acme');
    await receiver.received(1);
    await restart({ sealingKeys: [next] });
    await publish('acme');
    await bench.reported(1);

    const shown = [
      await store.list({ limit: 10 }),
      await endpoints.list(),
      endpoints,
      bench.options,
      bench.publisher,
      bench.logged,
      await endpoints.reseal().catch((error: unknown) => error),
    ];
    const text = shown.map((value) => inspect(value, { depth: 12, showHidden: true })).join('\n');
    expect(text).toContain('v1.');
    for (const hidden of [secret!, own, sealingKeys[0]!.key, next.key, credential])
      expect(text.includes(hidden)).toBe(false);
  });

  it('reads stored credentials that would be refused today', async () => {
    const headers = { 'X-Api-Key': 'x' };
    await endpoints.create({ id: 'crm', url: receiver.url, credentials: { headers } });
    const stored = (await store.find('crm'))!;
    const credentials = sealCredentials(new SecretSealer(sealingKeys), stored, {
      headers: { 'X-Api-Key': '' },
    });
    await store.replace({ ...stored, credentials, version: stored.version + 1 });
    await endpoints.update('crm', { description: 'changed' });

    expect(await bench.publisher.send('crm', 'order.created', {})).toMatchObject({
      status: 'delivered',
    });
    expect(receiver.requests[0]!.headers).toContainEqual(['X-Api-Key', '']);
  });

  it('logs once for each endpoint that its secret cannot be decrypted', async () => {
    for (const id of ['lost1', 'lost2']) await endpoints.create({ id, url: receiver.url });
    await restart({ sealingKeys: [next] });
    await endpoints.create({ id: 'fine', url: receiver.url });
    for (const id of ['lost1', 'fine', 'lost2', 'lost1', 'fine', 'lost2']) {
      await bench.publisher.send(id, 'order.created', {});
    }

    expect(receiver.requests).toHaveLength(2);
    expect(bench.logs('warn')).toEqual([
      expect.stringMatching(/sealed_secret_unreadable.*endpoint "lost1"/),
      expect.stringMatching(/sealed_secret_unreadable.*endpoint "lost2"/),
    ]);
  });

  it('retries a delivery whose secret cannot be decrypted', async () => {
    const { secret } = await endpoints.create({ id: 'crm', url: receiver.url });
    await restart({ sealingKeys: [next] });
    await publish();
    await bench.reported(1);
    expect(bench.reports[0]!.outcome).toMatchObject({ type: 'retry', reason: 'no_signing_key' });
    expect(bench.logs('warn').join()).toContain('"first", which is not among the sealingKeys');
    await expect(endpoints.reseal()).rejects.toMatchObject({ code: 'sealed_secret_unreadable' });
    await expect(endpoints.disable('crm')).resolves.toBeDefined();
    await endpoints.enable('crm');

    await restart({ sealingKeys: [next, ...sealingKeys] });
    await publish();
    await receiver.received(1);
    await expect(verified(0, secret!)).resolves.toBeDefined();
    await expect(endpoints.reseal()).resolves.toBe(1);
    await expect(endpoints.reseal()).resolves.toBe(0);
    await restart({ sealingKeys: [next] });
    await publish();
    await receiver.received(2);
    await expect(verified(1, secret!)).resolves.toBeDefined();
  });

  it('reseals every page of endpoints, also if one of them is deleted meanwhile', async () => {
    const ids = Array.from({ length: 102 }, (_, index) => `crm-${1_000 + index}`);
    for (const id of ids) await endpoints.create({ id, url: receiver.url });
    await restart({ sealingKeys: [next, ...sealingKeys] });
    store.beforeReplace = async () => store.remove(ids[0]!);

    await expect(endpoints.reseal()).resolves.toBe(101);
    await expect(endpoints.reseal()).resolves.toBe(0);
  });

  it('does not reseal an endpoint twice that another process has resealed meanwhile', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await restart({ sealingKeys: [next, ...sealingKeys] });
    store.beforeReplace = () => endpoints.reseal();

    await expect(endpoints.reseal()).resolves.toBe(0);
    expect((await store.find('crm'))!.version).toBe(2);
  });

  it('passes on the error of a store that fails while secrets are resealed', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await restart({ sealingKeys: [next, ...sealingKeys] });
    store.beforeReplace = async () => {
      throw new Error('the disk is full');
    };

    await expect(endpoints.reseal()).rejects.toThrow('the disk is full');
  });

  it('uses the current sealing key with every change', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await restart({ sealingKeys: [next, ...sealingKeys] });
    await endpoints.update('crm', { description: 'x' });

    await restart({ sealingKeys: [next] });
    await publish();
    await bench.reported(1);
    expect(bench.reports[0]!.outcome).toEqual({ type: 'delivered' });
  });

  it('retries a delivery whose stored settings are invalid', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    const kept = (await store.find('crm'))!;
    const settings = { headers: { Authorization: 'x' } };
    await store.replace({ ...kept, settings, version: 2 });
    await publish();
    await bench.reported(1);

    expect(bench.reports[0]!.outcome).toMatchObject({ type: 'retry', reason: 'no_signing_key' });
    expect(bench.logs('warn').join()).toContain('endpoint_unreadable');
    expect(receiver.requests).toEqual([]);
  });
});

describe('paused endpoints', () => {
  it('record events, which are attempted in order once they are resumed', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    const { pausedAt } = await endpoints.pause('crm');
    expect(pausedAt).toEqual(new Date(bench.clock.now()));
    await publish();
    await publish();
    await bench.reported(2);
    await bench.clock.advance(48 * HOUR);
    expect(receiver.requests).toEqual([]);
    expect((await endpoints.pause('crm')).pausedAt).toEqual(pausedAt);

    const { pausedAt: none } = await endpoints.resume('crm');
    await receiver.received(2);
    const [first, second] = receiver.requests.map(({ claims }) => claims.iat);
    expect([none, first]).toEqual([undefined, second]);
    expect(await store.find('crm')).not.toHaveProperty('pausedAt');
  });

  it('stay paused when they are enabled, and give up what is due while they are disabled', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await endpoints.pause('crm');
    await publish();
    await bench.reported(1);
    await endpoints.disable('crm');
    await bench.clock.advance(60_000);
    expect(bench.reports.at(-1)?.outcome).toMatchObject({ reason: 'endpoint_disabled' });

    expect((await endpoints.enable('crm')).pausedAt).toBeDefined();
    expect(await publish()).toEqual(['crm']);
    await bench.reported(3);
    expect(bench.reports.at(-1)?.outcome).toMatchObject({ reason: 'endpoint_paused' });
    expect(receiver.requests).toEqual([]);
  });

  it('start with a closed circuit when they are resumed', async () => {
    receiver.script = () => ({ status: 503, headers: { 'Retry-After': '86400' } });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    await endpoints.pause('crm');
    receiver.script = () => ({ status: 204 });
    await endpoints.resume('crm');

    expect(await endpoints.circuit('crm')).toEqual({ state: 'closed', failuresInRow: 0 });
    await publish();
    await receiver.received(2);
  });

  it('do not bring forward deliveries that wait for something else', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await endpoints.pause('crm');
    await bench.publisher.publish('order.created', { id: 8 }, { delay: '2h' });
    await publish();
    await bench.reported(1);
    await endpoints.resume('crm');
    await receiver.received(1);
    await bench.reported(2);

    await bench.clock.advance(HOUR);
    expect(receiver.requests).toHaveLength(1);
    await bench.clock.advance(HOUR);
    await receiver.received(2);
  });

  it('make the rest due if resume is called again after a failure', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });
    await endpoints.pause('crm');
    await publish();
    await bench.reported(1);
    jest.spyOn(bench.queue, 'redeliver').mockRejectedValueOnce(new Error('away'));
    await expect(endpoints.resume('crm')).rejects.toThrow('away');
    expect(receiver.requests).toEqual([]);

    await endpoints.resume('crm');
    await receiver.received(1);
  });
});

describe('test', () => {
  it('sends one signed event, also to a disabled endpoint, without effect on its state', async () => {
    const { secret } = await endpoints.create({ id: 'crm', url: receiver.url, events: ['a.b'] });
    await endpoints.disable('crm');
    const result = await endpoints.test('crm');

    expect(result).toEqual({ delivered: true, statusCode: 204, durationMs: expect.any(Number) });
    const { claims } = await verified(0, secret!);
    expect(claims.webhook.event).toBe('webhook.test');

    receiver.script = () => ({ status: 410 });
    await endpoints.enable('crm');
    expect(await endpoints.test('crm')).toMatchObject({
      delivered: false,
      statusCode: 410,
      failureReason: 'http_410',
    });
    await bench.clock.advance(HOUR);
    expect(receiver.requests).toHaveLength(2);
    expect((await endpoints.get('crm')).disabled).toBeUndefined();
    expect(bench.reports).toEqual([]);
  });
});

describe('configured endpoints', () => {
  beforeEach(() =>
    restart({
      endpoints: [
        { id: 'b', url: receiver.url, secret: own, tenant: 'acme', timeout: '3s' },
        { id: 'd', url: receiver.url, disabled: true },
      ],
    }),
  );

  it('hide stored endpoints of their ids, also if they hide a whole page', async () => {
    await endpoints.create({ id: 'e', tenant: 'globex', url: receiver.url });
    const stored = (await store.find('e'))!;
    for (const id of ['b', 'd']) await store.insert({ ...stored, id });
    const first = await endpoints.list({ tenant: 'globex', limit: 1 });
    const second = await endpoints.list({ tenant: 'globex', limit: 1, after: first.next });

    expect([first.endpoints, first.next]).toEqual([[], 'd']);
    expect(second.endpoints.map(({ id }) => id)).toEqual(['e']);
    expect(second.next).toBeUndefined();
  });

  it('are listed with stored endpoints, page by page', async () => {
    for (const id of ['a', 'c', 'e']) await endpoints.create({ id, url: receiver.url });
    const ids: string[] = [];
    let after: string | undefined;
    do {
      const page = await endpoints.list({ after, limit: 2 });
      expect(page.endpoints.length).toBeLessThanOrEqual(2);
      ids.push(...page.endpoints.map(({ id, source }) => `${id} ${source}`));
      after = page.next;
    } while (after !== undefined);

    expect(ids).toEqual(['a store', 'b options', 'c store', 'd options', 'e store']);
    expect(await endpoints.get('b')).toEqual({
      id: 'b',
      tenant: 'acme',
      url: receiver.url,
      events: ['**'],
      settings: { timeout: 3_000 },
      keys: [],
      source: 'options',
      version: 1,
    });
    expect((await endpoints.get('d')).disabled).toMatchObject({ reason: 'requested' });
  });

  it.each<[string, () => Promise<unknown>]>([
    ['updated', () => endpoints.update('b', { description: 'x' })],
    ['deleted', () => endpoints.delete('b')],
    ['rotated', () => endpoints.rotateKey('b')],
  ])('are not %s', async (_, call) => {
    await expect(call()).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringContaining('in the configuration'),
    });
  });

  it('are disabled and enabled in this process, and can be tested', async () => {
    expect((await endpoints.enable('d')).disabled).toBeUndefined();
    expect(await publish()).toEqual(['d']);
    expect((await endpoints.disable('d')).disabled).toMatchObject({ reason: 'requested' });
    expect(await publish()).toEqual([]);
    expect(await endpoints.test('b')).toMatchObject({ delivered: true });
    await receiver.received(2);
    expect(await store.list({ limit: 2 })).toHaveLength(0);
  });

  it('are paused and resumed in this process', async () => {
    await endpoints.enable('d');
    expect((await endpoints.pause('d')).pausedAt).toBeDefined();
    await endpoints.enable('d');
    expect((await endpoints.get('d')).pausedAt).toBeDefined();
    expect(await publish()).toEqual(['d']);
    await bench.reported(1);
    expect(await endpoints.test('d')).toMatchObject({ delivered: true });

    expect((await endpoints.resume('d')).pausedAt).toBeUndefined();
    await receiver.received(2);
  });

  it('take precedence over a stored endpoint with the same id', async () => {
    await endpoints.create({ id: 'x', url: receiver.url });
    const { id: _, ...copy } = (await store.find('x'))!;
    await store.insert({ ...copy, id: 'd' });

    expect(await publish()).toEqual(['x']);
    const { endpoints: all } = await endpoints.list();
    expect(all.map(({ id, source }) => `${id} ${source}`)).toEqual([
      'b options',
      'd options',
      'x store',
    ]);
    await receiver.received(1);
  });
});

describe('an endpoint that another process creates', () => {
  it('receives the next event', async () => {
    const other = await PublisherBench.start({ endpointStore: store, sealingKeys });
    await publish('acme');
    await other.module
      .get(WebhookEndpoints)
      .create({ id: 'crm', url: receiver.url, tenant: 'acme' });

    expect(await publish('acme')).toEqual(['crm']);
    await other.stop();
  });
});

describe('a store that is down', () => {
  it('is logged once, also while deliveries to configured endpoints succeed', async () => {
    await restart({ endpoints: [{ id: 'own', url: receiver.url, events: ['own.*'] }] });
    receiver.script = () => ({ status: 500 });
    await endpoints.create({ id: 'crm', url: receiver.url });
    for (let count = 1; count <= 3; count++) await publish();
    await bench.reported(3);
    store.down = true;
    receiver.script = () => ({ status: 204 });
    for (let count = 4; count <= 8; count++) {
      await bench.clock.advance(10_000);
      await bench.publisher.send('own', 'order.created', {});
    }

    const told = bench
      .logs('error')
      .filter((line) => line.includes('its endpoint could not be looked up'));
    expect(told).toHaveLength(1);
  });

  it('makes publish fail, and keeps every delivery', async () => {
    receiver.script = () => ({ status: 500 });
    await endpoints.create({ id: 'crm', url: receiver.url });
    await publish();
    await bench.reported(1);
    store.down = true;
    await expect(publish()).rejects.toMatchObject({ code: 'store_unavailable' });
    await bench.clock.advance(HOUR);
    expect(bench.reports).toHaveLength(1);
    expect(await bench.dead()).toEqual([]);

    store.down = false;
    receiver.script = () => ({ status: 204 });
    await bench.clock.advance(HOUR);
    await receiver.received(2);
    await bench.reported(2);
    expect(bench.reports[1]!.outcome.type).toBe('delivered');
    const told = bench
      .logs('error')
      .filter((line) => line.includes('its endpoint could not be looked up'));
    expect(told).toHaveLength(1);
  });
});

function verified(index: number, secret: string): ReturnType<typeof verifyWebhookToken> {
  const issuers = [{ issuer: 'https://billing.example', secret }];
  const now = (): number => receiver.requests[index]!.claims.iat;
  return verifyWebhookToken(receiver.requests[index]!.token, { issuers, now });
}

function messageOf(error: unknown): string {
  return (error as Error).message;
}
