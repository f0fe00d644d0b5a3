import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { WebhookEndpoints } from 'nestjs-webhook-token';
import { WebhookDeliveries } from '../../lib/deliveries/webhook.deliveries.js';
import { PublisherBench } from '../publisher/publisher-bench.js';

// A crafted or mistaken scope must never be read as "all tenants". One bench serves all cases: none of them may change it.

const url = 'http://127.0.0.1:8/hooks';

let bench: PublisherBench;
let deliveryOfA: string;

const deliveries = (): WebhookDeliveries => bench.module.get(WebhookDeliveries);
const endpoints = (): WebhookEndpoints => bench.module.get(WebhookEndpoints);

beforeAll(async () => {
  bench = await PublisherBench.start();
  await endpoints().create({ id: 'a', tenant: 'A', url });
  await endpoints().create({ id: 'b', tenant: 'B', url });
  const options = { tenant: 'A', delay: '1h' } as const;
  const published = await bench.publisher.publish('order.created', {}, options);
  deliveryOfA = published.deliveries[0]!.id;
});
afterAll(async () => bench.stop());

class Tenants {
  readonly Tenant = 'A';
}

/** Values that a careless parser would read as "no tenant". */
const CRAFTED: readonly (readonly [string, unknown])[] = [
  ['a string', 'A'],
  ['a String object', new String('A')],
  ['an empty array', []],
  ['an array', ['A']],
  ['a Map', new Map([['tenant', 'A']])],
  ['a function', () => ({ tenant: 'A' })],
  ['null', null],
  ['a number', 1],
  ['an undefined tenant', { tenant: undefined }],
  ['an inherited undefined tenant', Object.create({ tenant: undefined })],
  ['an empty tenant', { tenant: '' }],
  ['an array of tenants', { tenant: ['A'] }],
  ['an object as tenant', { tenant: { $ne: null } }],
  ['a number as tenant', { tenant: 1 }],
  ['a tenant with a line break', { tenant: 'A\n' }],
  ['a misspelt member', { tennant: 'A' }],
  ['a capital letter', { Tenant: 'A' }],
  ['a member beside the tenant', { tenant: 'A', tenants: ['B'] }],
  ['an instance with a misspelt member', new Tenants()],
];

type Call = (scope: never) => Promise<unknown>;

const TAKING_A_SCOPE: Readonly<Record<string, Call>> = {
  'deliveries.list, as options': (scope) => deliveries().list({}, scope),
  'deliveries.list, as filter': (scope) => deliveries().list(scope),
  'deliveries.get': (scope) => deliveries().get(deliveryOfA, scope),
  'deliveries.payload': (scope) => deliveries().payload(deliveryOfA, scope),
  'deliveries.redeliver, as options': (scope) => deliveries().redeliver(deliveryOfA, scope),
  'deliveries.stats, as scope': (scope) => deliveries().stats({}, scope),
  'deliveries.stats, as filter': (scope) => deliveries().stats(scope),
  'deliveries.prune': (scope) => deliveries().prune(olderThan(scope)),
  'deliveries.erase': (scope) => deliveries().erase(scope),
  'endpoints.list': (scope) => endpoints().list(scope),
  'endpoints.get': (scope) => endpoints().get('a', scope),
  'endpoints.update': (scope) => endpoints().update('a', { description: 'x' }, scope),
  'endpoints.delete': (scope) => endpoints().delete('a', scope),
  'endpoints.disable': (scope) => endpoints().disable('a', scope),
  'endpoints.enable': (scope) => endpoints().enable('a', scope),
  'endpoints.pause': (scope) => endpoints().pause('a', scope),
  'endpoints.resume': (scope) => endpoints().resume('a', scope),
  'endpoints.rotateKey, as options': (scope) => endpoints().rotateKey('a', scope),
  'endpoints.rotateKey': (scope) => endpoints().rotateKey('a', {}, scope),
  'endpoints.test': (scope) => endpoints().test('a', scope),
};

it.each(Object.entries(TAKING_A_SCOPE))('%s refuses every crafted scope', async (_, call) => {
  const before = await state();
  const outcomes = await Promise.all(
    CRAFTED.map(async ([name, scope]) => [name, await codeOf(call(scope as never))]),
  );

  expect(outcomes).toEqual(CRAFTED.map(([name]) => [name, 'invalid_option']));
  expect(await state()).toEqual(before);
});

it('deliveries.redeliver refuses each crafted scope as a filter, except an id', async () => {
  for (const [, filter] of CRAFTED) {
    const code = typeof filter === 'string' ? 'unknown_delivery' : 'invalid_option';
    await expect(deliveries().redeliver(filter as never)).rejects.toMatchObject({ code });
  }
});

it('endpoints.create refuses a tenant that is undefined', async () => {
  await expect(endpoints().create({ url, tenant: undefined })).rejects.toMatchObject({
    code: 'invalid_option',
    problems: [expect.objectContaining({ path: 'tenant' })],
  });
});

it.each(['b', 'missing'])('publisher.sign does not sign for "%s" as tenant A', async (id) => {
  const { publisher } = bench;
  const signed = publisher.sign(id, 'order.created', {}, { tenant: 'A' });

  await expect(signed).rejects.toMatchObject({ code: 'unknown_endpoint' });
  await expect(publisher.sign('a', 'order.created', {}, { tenant: 'A' })).resolves.toMatchObject({
    url,
  });
});

/** The same scope with the one option that `prune` requires. */
function olderThan(scope: unknown): never {
  const isRecord = Object.prototype.toString.call(scope) === '[object Object]';
  if (!isRecord) return scope as never;
  return Object.create(scope as object, { olderThan: { value: '1s', enumerable: true } }) as never;
}

async function codeOf(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
    return 'accepted';
  } catch (error) {
    return (error as { code?: unknown }).code;
  }
}

async function state(): Promise<unknown> {
  return [
    await endpoints().list(),
    (await deliveries().list()).deliveries,
    await bench.queue.find([deliveryOfA]),
  ];
}
