import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { WebhookEndpoints, type WebhookEventToPublish } from '../../lib/index.js';
import { PublisherBench } from './publisher-bench.js';
import { WireReceiver } from './wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  bench = await PublisherBench.start({
    endpoints: [
      { id: 'crm', url: receiver.url, events: ['order.*'] },
      { id: 'erp', url: receiver.url, events: ['order.paid'] },
      {
        id: 'hasty',
        url: receiver.url,
        events: ['alarm.*'],
        retry: { attempts: 2, schedule: ['1s', '2s'] },
      },
      { id: 'patient', url: receiver.url, events: ['report.*'], retry: { attempts: 12 } },
    ],
  });
});
afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

describe('publishAll', () => {
  it('publishes every event, and returns the results in their order', async () => {
    const results = await bench.publisher.publishAll([
      { event: 'order.created', data: { id: 1 } },
      { event: 'order.paid', data: { id: 1 }, options: { id: 'paid-1' } },
      { event: 'order.archived' },
      { event: 'unknown.event' },
    ]);

    const endpoints = results.map(({ deliveries }) => deliveries.map((one) => one.endpointId));
    expect(endpoints).toEqual([['crm'], ['crm', 'erp'], ['crm'], []]);
    expect(results[1]!.id).toBe('paid-1');
    await receiver.received(4);
    const sent = receiver.requests.map(({ claims }) => claims.webhook.event);
    expect(sent.toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      'order.archived',
      'order.created',
      'order.paid',
      'order.paid',
    ]);
  });

  it('records all deliveries in one call of the queue', async () => {
    const sizes: number[] = [];
    const enqueue = bench.queue.enqueue.bind(bench.queue);
    bench.queue.enqueue = async (deliveries, options) => {
      sizes.push(deliveries.length);
      return enqueue(deliveries, options);
    };
    await bench.publisher.publishAll(
      Array.from({ length: 50 }, (_, id) => ({ event: 'order.paid', data: { id } })),
    );

    expect(sizes).toEqual([100]);
    expect(await bench.publisher.publishAll([])).toEqual([]);
  });

  it('keeps the order of a key', async () => {
    const levels = Array.from({ length: 5 }, (_, level) => ({
      event: 'order.changed',
      data: { level },
      options: { orderingKey: 'order-1' },
    }));
    await bench.publisher.publishAll(levels);
    await receiver.received(5);

    expect(receiver.requests.map(({ claims }) => claims.webhook.data.level)).toEqual([
      0, 1, 2, 3, 4,
    ]);
    const [first, ...others] = receiver.requests.map(({ claims }) => claims.webhook.seq);
    expect(others).toEqual([first + 1, first + 2, first + 3, first + 4]);
    expect(receiver.requests[0]!.claims.webhook.key).toBe('order-1');
  });

  it('reports duplicates of each event', async () => {
    const once = { event: 'order.paid', data: { id: 1 }, options: { id: 'paid-1' } };
    await bench.publisher.publishAll([once]);
    const results = await bench.publisher.publishAll([once, { event: 'order.paid', data: {} }]);

    expect(results.map(({ duplicate }) => duplicate)).toEqual([true, undefined]);
  });

  it.each<[string, readonly WebhookEventToPublish[], string]>([
    ['has data that is undefined', [{ event: 'order.paid', data: undefined }], 'invalid_data'],
    ['has no valid name', [{ event: 'no name' }], 'invalid_option'],
    [
      'has a misspelt option',
      [{ event: 'order.paid', options: { ids: 'x' } as object }],
      'invalid_option',
    ],
    [
      'has a transaction of its own',
      [{ event: 'order.paid', options: { tx: {} } as object }],
      'invalid_option',
    ],
    [
      'has the id of another one',
      [
        { event: 'order.paid', data: { id: 1 }, options: { id: 'twin' } },
        { event: 'order.paid', data: { id: 2 }, options: { id: 'twin' } },
      ],
      'id_conflict',
    ],
    [
      'is one of too many',
      Array.from({ length: 1_001 }, () => ({ event: 'order.paid' })),
      'invalid_data',
    ],
  ])('records nothing if an event %s', async (_, events, code) => {
    const valid = { event: 'order.created', data: { id: 0 } };
    await expect(bench.publisher.publishAll([valid, ...events])).rejects.toMatchObject({ code });
    expect(await bench.queue.list({}, { limit: 10 })).toEqual([]);
  });

  it.each<[string, unknown, string]>([
    [
      'has a misspelt option',
      { event: 'order.paid', options: { ids: 'x' } },
      'publishAll: events[1] ("order.paid"): ids: unknown option; did you mean "id"?',
    ],
    [
      'has an option beside event and data',
      { event: 'order.paid', data: { id: 1 }, tenant: 'acme' },
      'publishAll: events[1] ("order.paid"): tenant: unknown option; move it into "options".',
    ],
    [
      'has misspelt options',
      { event: 'order.paid', option: { tenant: 'acme' } },
      'publishAll: events[1] ("order.paid"): option: unknown option; did you mean "options"?',
    ],
    [
      'has misspelt data',
      Object.assign(Object.create({}) as object, { event: 'order.paid', dta: { id: 1 } }),
      'publishAll: events[1] ("order.paid"): dta: unknown option; did you mean "data"?',
    ],
    [
      'has a BigInt',
      { event: 'order.paid', data: { price: 1n } },
      'publishAll: events[1] ("order.paid"): The data is not JSON: data.price is a BigInt; convert it to a string or a number.',
    ],
    ['has no valid name', { event: 'no name' }, 'publishAll: events[1]: The event name must be '],
    [
      'does not fit its endpoint',
      { event: 'order.paid', options: { profile: 'standard-webhooks' } },
      'publishAll: events[1] ("order.paid"): profile for endpoint "crm": ',
    ],
    [
      'is too large for a HEAD',
      { event: 'order.paid', data: ['x'.repeat(9_000)], options: { method: 'HEAD' } },
      'publishAll: events[1] ("order.paid"): ',
    ],
    [
      'has the id of another one',
      { event: 'order.paid', data: { id: 1 }, options: { id: 'first' } },
      'publishAll: events[1] ("order.paid"): The id was used before',
    ],
    [
      'has an id that was used before',
      { event: 'order.paid', data: { id: 1 }, options: { id: 'used' } },
      'publishAll: events[1] ("order.paid"): The id was used before',
    ],
    [
      'has data that is undefined',
      { event: 'order.paid', data: undefined },
      'publishAll: events[1] must be an object { event, data, options }',
    ],
    ['is missing', undefined, 'publishAll: events[1] must be an object'],
  ])('says which event %s', async (_, event, message) => {
    await bench.publisher.publish('order.created', { id: 0 }, { id: 'used' });
    const first = { event: 'order.created', data: { id: 0 }, options: { id: 'first' } };
    const events = [first, event] as WebhookEventToPublish[];

    await expect(bench.publisher.publishAll(events)).rejects.toMatchObject({
      message: expect.stringContaining(message),
      stack: expect.stringContaining(message),
    });
    expect(await bench.queue.list({}, { limit: 10 })).toHaveLength(1);
  });

  it('refuses a list with holes', async () => {
    await expect(bench.publisher.publishAll(Array<never>(2))).rejects.toMatchObject({
      code: 'invalid_data',
      message: expect.stringContaining('events[0] must be an object'),
    });
  });

  it('records nothing if the id of one was used for another event', async () => {
    await bench.publisher.publish('order.created', { id: 1 }, { id: 'used' });
    const events = [
      { event: 'order.created', data: { id: 2 } },
      { event: 'order.created', data: { id: 3 }, options: { id: 'used' } },
    ];
    await expect(bench.publisher.publishAll(events)).rejects.toMatchObject({ code: 'id_conflict' });
    expect(await bench.queue.list({}, { limit: 10 })).toHaveLength(1);
  });

  it('records nothing of a call whose id another one uses at the same time', async () => {
    const calls = [1, 2].map(async (id) =>
      bench.publisher.publishAll([
        { event: 'order.created', data: { id } },
        { event: 'order.created', data: { id }, options: { id: 'used' } },
      ]),
    );

    expect(await Promise.allSettled(calls)).toMatchObject([
      { status: 'fulfilled' },
      { status: 'rejected', reason: { code: 'id_conflict' } },
    ]);
    expect(await bench.queue.list({}, { limit: 10 })).toHaveLength(2);
  });
});

describe('expiresIn', () => {
  /** Publishes an event that expires before what its first run decides. */
  async function expire(decided: {
    readonly type: string;
    readonly reason: string;
  }): Promise<void> {
    await bench.publisher.publish('order.created', { id: 1 }, { expiresIn: '3s' });
    await bench.reported(1);
    expect(bench.reports[0]!.outcome).toEqual({ ...decided, at: bench.clock.now() + 3_000 });
    await bench.clock.advance(3_000);
    await bench.reported(2);
  }

  it('gives a delivery up when it expires, before its next attempt', async () => {
    receiver.script = () => ({ status: 503 });
    await expire({ type: 'retry', reason: 'http_503' });

    expect(await bench.dead()).toMatchObject([{ reason: 'expired', attempts: 1 }]);
    expect(receiver.requests).toHaveLength(1);
  });

  it('gives a delivery up when it expires, while its endpoint is paused', async () => {
    await bench.module.get(WebhookEndpoints).pause('crm');
    await expire({ type: 'defer', reason: 'endpoint_paused' });

    expect(await bench.dead()).toMatchObject([{ reason: 'expired', attempts: 0 }]);
    expect(receiver.requests).toEqual([]);
  });

  it('does not send an event that expires before its first attempt', async () => {
    // The endpoint's schedule begins with a wait of 1 s.
    await bench.publisher.publish('alarm.raised', { id: 1 }, { expiresIn: '1s' });
    await bench.clock.advance(1_000);
    await bench.reported(1);

    expect(await bench.dead()).toMatchObject([{ reason: 'expired', attempts: 0 }]);
    expect(receiver.requests).toEqual([]);
  });

  it('does not keep an event that is delivered in time', async () => {
    await bench.publisher.send('crm', 'order.created', { id: 1 }, { expiresIn: '1s' });
    expect(receiver.requests).toHaveLength(1);
    expect(await bench.dead()).toEqual([]);
  });

  it('must be longer than the delay', async () => {
    const event = { event: 'order.created', data: { id: 1 } } as const;
    const publish = async (delay: string): Promise<unknown> =>
      bench.publisher.publishAll([event, { ...event, options: { delay, expiresIn: '2s' } }]);

    for (const delay of ['2s', '3s'])
      await expect(publish(delay)).rejects.toMatchObject({
        code: 'invalid_option',
        problems: [{ path: 'delay', message: expect.stringContaining('lengthen expiresIn') }],
      });
    expect(await bench.queue.list({}, { limit: 10 })).toEqual([]);
    await expect(publish('1999ms')).resolves.toHaveLength(2);
  });

  it.each([0, -1, 'soon'])('refuses %s', async (expiresIn) => {
    await expect(bench.publisher.publish('order.created', {}, { expiresIn })).rejects.toMatchObject(
      { code: 'invalid_option' },
    );
  });
});

describe('the retry settings of an endpoint', () => {
  it('replace the schedule and the attempts of the publisher', async () => {
    receiver.script = () => ({ status: 500 });
    await bench.publisher.publish('alarm.raised', { id: 1 });
    expect(receiver.requests).toEqual([]);
    await bench.clock.advance(1_000);
    await bench.reported(1);
    await bench.clock.advance(2_000);
    await bench.reported(2);

    expect(await bench.dead()).toMatchObject([{ reason: 'http_500', attempts: 2 }]);
  });

  it('take what they leave out from the publisher', async () => {
    receiver.script = () => ({ status: 500 });
    await bench.publisher.publish('report.made', { id: 1 });
    await bench.reported(1);

    const at = bench.clock.now() + 5_000;
    expect(bench.reports[0]!.outcome).toEqual({ type: 'retry', at, reason: 'http_500' });
  });
});
