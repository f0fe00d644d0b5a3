import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import {
  isWebhookError,
  MemoryEndpointStore,
  WebhookEndpoints,
  type WebhookEndpointFilter,
  type WebhookPublisherOptions,
} from 'nestjs-webhook-token';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;
let endpoints: WebhookEndpoints;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  await start();
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

async function start(options: Partial<WebhookPublisherOptions> = {}): Promise<void> {
  bench = await PublisherBench.start(options);
  endpoints = bench.module.get(WebhookEndpoints);
}

async function restart(options: Partial<WebhookPublisherOptions>): Promise<void> {
  await bench.stop();
  await start(options);
}

/** Whether an event with this data matches a filter, asked of a managed endpoint. */
async function matches(filter: unknown, data?: unknown, event = 'order.created'): Promise<boolean> {
  const { endpoint } = await endpoints.create({
    url: receiver.url,
    filter: filter as WebhookEndpointFilter,
  });
  return endpoints.testFilter(endpoint.id, event, data);
}

/** What is wrong with a filter: each path with its message. */
async function problemsOf(filter: unknown): Promise<Record<string, string>> {
  try {
    await endpoints.create({ url: receiver.url, filter: filter as WebhookEndpointFilter });
    return {};
  } catch (error) {
    if (!isWebhookError(error, 'invalid_option')) throw error;
    const { problems } = error as unknown as { problems: { path: string; message: string }[] };
    return Object.fromEntries(problems.map(({ path, message }) => [path, message]));
  }
}

/** A condition below this many members. */
function nested(levels: number, inmost: unknown): unknown {
  return levels === 0 ? inmost : { a: nested(levels - 1, inmost) };
}

const ORDER = {
  total: 100,
  status: 'paid',
  note: null,
  isGift: false,
  customer: { country: 'DE' },
  tags: ['vip', 'new'],
  items: [
    { sku: 'shoe-1', count: 2 },
    { sku: 'hat-7', count: 9 },
  ],
};

describe('a filter', () => {
  it.each<[unknown, boolean]>([
    [{ total: 100 }, true],
    [{ total: 101 }, false],
    [{ total: { $eq: 100 } }, true],
    [{ total: { $ne: 100 } }, false],
    [{ total: { $ne: 5 } }, true],
    [{ total: { $in: [1, 100] } }, true],
    [{ total: { $in: [1, 'x'] } }, false],
    [{ total: { $nin: [1, 'x'] } }, true],
    [{ total: { $nin: [100] } }, false],
    [{ total: { $gt: 100 } }, false],
    [{ total: { $gte: 100 } }, true],
    [{ total: { $lt: 100 } }, false],
    [{ total: { $lte: 100 } }, true],
    [{ total: { $gt: 50, $lt: 200 } }, true],
    [{ total: { $gt: 50, $lt: 80 } }, false],
    [{ status: { $startsWith: 'pa' } }, true],
    [{ status: { $startsWith: 'ai' } }, false],
    [{ status: { $gt: 'a' } }, true],
    [{ isGift: false, status: 'paid' }, true],
    [{ isGift: true, status: 'paid' }, false],
    [{ note: null }, true],
    [{ note: { $ne: null } }, false],
    [{ total: { $ne: null } }, true],
    [{ customer: { $ne: null } }, true],
    [{ customer: { country: { $in: ['DE', 'AT'] } } }, true],
    [{ note: { $exists: true } }, true],
    [{ coupon: { $exists: false } }, true],
    [{ coupon: { code: { $exists: false } } }, true],
    [{ coupon: { $exists: true } }, false],
    [{ total: { $or: [{ $lt: 5 }, { $gt: 99 }] } }, true],
    [{ total: { $and: [{ $gt: 5 }, { $lt: 99 }] } }, false],
    [{ total: { $not: { $lt: 99 } } }, true],
    [{ $or: [{ total: 5 }, { status: 'paid' }] }, true],
  ])('%j over the data of an order is %j', async (data, expected) => {
    expect(await matches({ data }, ORDER)).toBe(expected);
  });

  it.each<[unknown, boolean]>([
    [{ event: 'order.created' }, true],
    [{ event: { $startsWith: 'order.' } }, true],
    [{ event: { $in: ['order.paid', 'order.refunded'] } }, false],
    [{ $not: { event: 'order.paid' } }, true],
    [{ $or: [{ event: 'order.paid' }, { data: { total: 100 } }] }, true],
    [{ $and: [{ event: 'order.created' }, { data: { total: 5 } }] }, false],
    [{ event: 'order.created', data: { total: 5 } }, false],
  ])('%j over event and data is %j', async (filter, expected) => {
    expect(await matches(filter, ORDER)).toBe(expected);
  });

  it('compares members of the data that are named event and data', async () => {
    const launch = { event: { name: 'launch' }, data: { seats: 3 } };

    expect(await matches({ data: { event: { name: 'launch' } } }, launch)).toBe(true);
    expect(await matches({ data: { data: { seats: 4 } } }, launch)).toBe(false);
  });

  it.each<[unknown, boolean]>([
    [{ tags: 'vip' }, true],
    [{ tags: 'old' }, false],
    [{ tags: { $ne: 'vip' } }, false],
    [{ tags: { $ne: 'old' } }, true],
    [{ tags: { $nin: ['vip', 'old'] } }, false],
    [{ items: { sku: { $startsWith: 'hat-' } } }, true],
    [{ items: { sku: 'shoe-1', count: 2 } }, true],
    [{ items: { sku: 'shoe-1', count: 9 } }, false],
    [{ items: { count: { $gt: 2, $lt: 9 } } }, false],
    [{ items: { $not: { sku: 'hat-7' } } }, false],
    [{ items: { $not: { sku: 'bag-3' } } }, true],
    [{ items: { sku: { $ne: 'hat-7' } } }, true],
    [{ items: { $exists: true } }, true],
  ])('%j holds if one element of the list meets all of it: %j', async (data, expected) => {
    expect(await matches({ data }, ORDER)).toBe(expected);
  });

  it.each<unknown>([
    { total: '100' },
    { total: { $ne: '100' } },
    { total: { $not: { $gt: '5' } } },
    { total: { $startsWith: '1' } },
    { total: { $nin: ['x'] } },
    { coupon: 'A' },
    { coupon: { $ne: 'A' } },
    { $not: { coupon: 'A' } },
    { note: { $gte: 0 } },
    { customer: 'DE' },
    { customer: { $not: { $eq: 'DE' } } },
    { status: { length: { $exists: false } } },
    { status: { length: 4 } },
    { tags: { length: 2 } },
    { tags: { $ne: 5 } },
  ])('%j matches nothing that cannot be compared, and nor does its opposite', async (data) => {
    expect(await matches({ data }, ORDER)).toBe(false);
    expect(await matches({ $not: { data } }, ORDER)).toBe(false);
  });

  it('matches no bytes, and no event without data, by conditions on data', async () => {
    for (const data of [Buffer.from('{"total":100}'), undefined]) {
      expect(await matches({ data: { total: 100 } }, data)).toBe(false);
      expect(await matches({ $not: { data: { total: 100 } } }, data)).toBe(false);
      expect(await matches({ event: 'order.created' }, data)).toBe(true);
    }
    expect(await matches({ data: { 0: { $exists: false } } }, Buffer.from('x'))).toBe(false);
  });

  it('compares the JSON that is sent', async () => {
    const createdAt = new Date('2026-11-24T00:00:00Z');

    expect(await matches({ data: { createdAt: { $gte: '2026-11' } } }, { createdAt })).toBe(true);
    expect(await matches({ data: 5 }, 5)).toBe(true);
    expect(await matches({ data: 'a' }, ['a', 'b'])).toBe(true);
  });

  it('reads own members only', async () => {
    const filter = (name: string): unknown =>
      JSON.parse(`{ "data": { "${name}": { "$exists": true } } }`) as unknown;

    for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      expect(await matches(filter(name), {})).toBe(false);
      expect(await matches(filter(name), JSON.parse(`{ "${name}": 1 }`))).toBe(true);
    }
    const polluting = JSON.parse('{ "data": { "__proto__": { "total": 1 } } }') as unknown;
    expect(await matches(polluting, { total: 1 })).toBe(false);
    expect(({} as { total?: number }).total).toBeUndefined();
  });

  it('ends after many comparisons, without a match', async () => {
    const rows = Array.from({ length: 400 }, () => ({
      cells: Array.from({ length: 400 }, () => 1),
    }));

    expect(await matches({ data: { rows: { cells: 2 } } }, { rows })).toBe(false);
    expect(await matches({ $not: { data: { rows: { cells: 2 } } } }, { rows })).toBe(false);
    expect(await matches({ data: { rows: { cells: 1 } } }, { rows })).toBe(true);
  });
});

describe('a filter that is saved', () => {
  it.each<[unknown, string, string]>([
    ['total > 5', 'filter', 'must be an object'],
    [{}, 'filter', 'has no condition'],
    [{ data: {} }, 'filter.data', 'has no condition'],
    [{ data: { total: {} } }, 'filter.data.total', 'has no condition'],
    [{ dat: { total: 5 } }, 'filter.dat', 'did you mean "data"?'],
    [{ headers: { a: 'b' } }, 'filter.headers', 'use one of event, data, $and, $or, $not'],
    [{ data: { total: { $gtt: 5 } } }, 'filter.data.total.$gtt', 'did you mean "$gt"?'],
    [{ data: { total: { $exist: true } } }, 'filter.data.total.$exist', 'did you mean "$exists"?'],
    [{ data: { total: { $regex: '.*' } } }, 'filter.data.total.$regex', 'unknown option'],
    [{ data: { $where: 'true' } }, 'filter.data.$where', 'unknown option'],
    [{ event: { name: 'a' } }, 'filter.event.name', 'unknown option'],
    [{ event: 'order.*' }, 'filter.event', 'set the pattern in "events"'],
    [{ event: { $startsWith: 'order.*' } }, 'filter.event.$startsWith', 'no wildcard'],
    [{ $not: { event: { $in: ['a', 'b.**'] } } }, 'filter.$not.event.$in', 'no wildcard'],
    [{ data: { total: { $gte: true } } }, 'filter.data.total.$gte', 'must be a finite number'],
    [{ data: { total: { $gte: NaN } } }, 'filter.data.total.$gte', 'must be a finite number'],
    [{ data: { total: { $in: [] } } }, 'filter.data.total.$in', '1 to 100 values'],
    [{ data: { total: { $in: [{}] } } }, 'filter.data.total.$in[0]', 'must be a string'],
    [{ data: { total: { $exists: 1 } } }, 'filter.data.total.$exists', 'must be a boolean'],
    [{ data: { total: undefined } }, 'filter.data.total', 'must be a string'],
    [{ data: undefined }, 'filter.data', 'must be a string'],
    [{ data: { at: new Date() } }, 'filter.data.at', 'must be a string'],
    [{ data: { tags: ['a'] } }, 'filter.data.tags', 'must be a string'],
    [{ data: { note: 'a\0b' } }, 'filter.data.note', 'without control characters'],
    [{ data: { note: 'x'.repeat(256) } }, 'filter.data.note', 'at most 255 characters'],
    [{ data: { ['x'.repeat(256)]: 1 } }, `filter.data["${'x'.repeat(40)}"]`, 'at most 255'],
    [{ $or: { data: 5 } }, 'filter.$or', 'must be a list'],
    [{ $and: [] }, 'filter.$and', 'must be a list'],
    [{ $and: [{ event: 'a' }, 5] }, 'filter.$and[1]', 'must be an object'],
  ])('is refused: %j', async (filter, path, message) => {
    const problems = await problemsOf(filter);

    expect(Object.keys(problems)).toEqual([path]);
    expect(problems[path]).toContain(message);
  });

  it('has at most 8 levels', async () => {
    expect(await problemsOf({ data: nested(6, { $gte: 1 }) })).toEqual({});
    const tooDeep = await problemsOf({ data: nested(7, { $gte: 1 }) });
    expect(Object.values(tooDeep)).toEqual([expect.stringContaining('more than 8 levels')]);
    expect(Object.values(await problemsOf({ data: nested(5_000, 1) }))).toHaveLength(1);
    let not: unknown = { event: 'a' };
    for (let level = 0; level < 5_000; level++) not = { $not: not };
    expect(Object.values(await problemsOf(not))).toHaveLength(1);
  });

  it('has at most 64 conditions, and the list of its problems is short', async () => {
    const members = (count: number, value: unknown): unknown =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`m${index}`, value]));

    expect(await problemsOf({ data: members(64, 1) })).toEqual({});
    expect(await problemsOf({ $or: Array.from({ length: 64 }, () => ({ event: 'a' })) })).toEqual(
      {},
    );
    expect(await problemsOf({ $or: Array(65).fill(5) })).toEqual({
      'filter.$or': expect.stringContaining('must be a list of 1 to 64 conditions'),
    });
    expect(await problemsOf({ data: members(65, 1) })).toEqual({
      filter: expect.stringContaining('more than 64 conditions'),
    });
    const problems = await problemsOf({ data: members(10_000, {}) });
    expect(Object.keys(problems).length).toBeLessThan(70);
  });

  it('is refused in the options with its path', async () => {
    const endpoint = { id: 'crm', url: receiver.url, filter: { data: { total: { $gtt: 5 } } } };

    await expect(PublisherBench.start({ endpoints: [endpoint] })).rejects.toThrow(
      /endpoints\[0\]\.filter\.data\.total\.\$gtt.*did you mean/,
    );
  });
});

describe('publish to an endpoint with a filter', () => {
  const filter = { data: { total: { $gte: 100 } } };

  const publish = async (total: unknown, tenant?: string): Promise<string[]> => {
    const scope = tenant === undefined ? {} : { tenant };
    const { deliveries } = await bench.publisher.publish('order.created', { total }, scope);
    return deliveries.map(({ endpointId }) => endpointId).sort();
  };

  it('makes a delivery for a configured endpoint only if the event matches', async () => {
    await restart({
      endpoints: [
        { id: 'large', url: receiver.url, filter },
        { id: 'all', url: receiver.url },
      ],
    });

    expect(await publish(100)).toEqual(['all', 'large']);
    expect(await publish(99)).toEqual(['all']);
    expect(await publish('100')).toEqual(['all']);
    await receiver.received(4);
    expect((await endpoints.get('large')).settings).toEqual({ filter });
  });

  it('makes a delivery for a managed endpoint only if the event matches, until the filter is removed', async () => {
    const { endpoint } = await endpoints.create({ id: 'crm', url: receiver.url, filter });

    expect(endpoint.settings).toEqual({ filter });
    expect([await publish(99), await publish(100)]).toEqual([[], ['crm']]);
    await endpoints.update('crm', { filter: { data: { total: { $lt: 100 } } } });
    expect([await publish(99), await publish(100)]).toEqual([['crm'], []]);
    await endpoints.update('crm', { events: ['order.*'] });
    expect([await publish(99), await publish(100)]).toEqual([['crm'], []]);
    const view = await endpoints.update('crm', { filter: null });
    expect(view.settings).toEqual({});
    expect([await publish(99), await publish(100)]).toEqual([['crm'], ['crm']]);
  });

  it('filters each event of publishAll', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url, filter });

    const results = await bench.publisher.publishAll([
      { event: 'order.created', data: { total: 99 } },
      { event: 'order.created', data: { total: 100 } },
      { event: 'order.created' },
    ]);

    expect(results.map(({ deliveries }) => deliveries.length)).toEqual([0, 1, 0]);
  });

  it('sends what the application sends to one endpoint, without the filter', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url, filter });

    await bench.publisher.send('crm', 'order.created', { total: 1 });
    await receiver.received(1);

    expect(await publish(1)).toEqual([]);
    expect(receiver.requests).toHaveLength(1);
  });

  it('keeps a stored filter that was set before wildcards were refused', async () => {
    const store = new MemoryEndpointStore();
    await restart({ endpointStore: store });
    await endpoints.create({ id: 'crm', url: receiver.url });
    const stored = (await store.find('crm'))!;
    const before = { $or: [{ event: 'refund.*' }, { event: { $ne: 'order.*' } }] };
    await store.replace({ ...stored, version: 2, settings: { filter: before } });

    expect(await publish(1)).toEqual(['crm']);
    await receiver.received(1);
  });

  it('makes no delivery if the stored filter cannot be read', async () => {
    const store = new MemoryEndpointStore();
    await restart({ endpointStore: store });
    await endpoints.create({ id: 'crm', url: receiver.url, filter });
    const stored = (await store.find('crm'))!;
    const later = JSON.parse('{ "data": { "total": { "$mod": 2 } } }') as WebhookEndpointFilter;
    await store.replace({ ...stored, version: 2, settings: { filter: later } });

    expect(await publish(100)).toEqual([]);
    expect(await endpoints.testFilter('crm', 'order.created', { total: 100 })).toBe(false);
    await endpoints.update('crm', { filter });
    expect(await publish(100)).toEqual(['crm']);
  });
});

describe('testFilter', () => {
  it('is true for an endpoint without a filter, and regards nothing else', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url, events: ['refund.*'] });
    await endpoints.disable('crm');

    expect(await endpoints.testFilter('crm', 'order.created')).toBe(true);
    expect(receiver.requests).toEqual([]);
  });

  it('finds the endpoints of its tenant only', async () => {
    await endpoints.create({
      id: 'crm',
      url: receiver.url,
      tenant: 'acme',
      filter: { event: 'order.created' },
    });
    const ask = async (tenant: string | null): Promise<boolean> =>
      endpoints.testFilter('crm', 'order.created', {}, { tenant });

    expect(await ask('acme')).toBe(true);
    await expect(ask('other')).rejects.toMatchObject({ code: 'unknown_endpoint' });
    await expect(ask(null)).rejects.toMatchObject({ code: 'unknown_endpoint' });
    await expect(endpoints.testFilter('none', 'a')).rejects.toMatchObject({
      code: 'unknown_endpoint',
    });
  });

  it('refuses what publish refuses', async () => {
    await endpoints.create({ id: 'crm', url: receiver.url });

    await expect(endpoints.testFilter('crm', 'not a name')).rejects.toMatchObject({
      code: 'invalid_option',
    });
    await expect(endpoints.testFilter('crm', 'a', 1n)).rejects.toMatchObject({
      code: 'invalid_data',
    });
  });
});
