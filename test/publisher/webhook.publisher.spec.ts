import { getEventListeners, getMaxListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { AxiosError } from 'axios';
import { of, throwError } from 'rxjs';
import { WebhookDeliveries, WebhookEndpoints, InProcessQueue } from 'nestjs-webhook-token';
import { PublisherBench } from './publisher-bench.js';
import { WireReceiver } from './wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  const { url } = receiver;
  bench = await PublisherBench.start({
    endpoints: [
      { id: 'orders', url: `${url}/orders`, events: ['order.*'], headers: { 'X-Shop': 'a' } },
      { id: 'all', url: `${url}/all`, audience: ['https://all.example'], subject: 'all' },
      { id: 'deep', url: `${url}/deep`, events: ['order.**', 'refund.paid'] },
      { id: 'off', url: `${url}/off`, disabled: true },
      { id: 'tenant', url: `${url}/tenant`, tenant: 'acme' },
    ],
  });
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

describe('publish', () => {
  it.each([
    ['order.created', ['orders', 'all', 'deep']],
    ['order.line.added', ['all', 'deep']],
    ['refund.paid', ['all', 'deep']],
    ['refund.failed', ['all']],
  ])('sends %s to %j', async (event, endpoints) => {
    const result = await bench.publisher.publish(event as 'a.b', { id: 7 });
    await receiver.received(endpoints.length);

    expect(result).toEqual({
      id: expect.any(String),
      event,
      deliveries: endpoints.map((endpointId) => ({ id: expect.any(String), endpointId })),
    });
    const paths = receiver.requests.map(({ path }) => path.replace('/hooks/', ''));
    expect(paths.sort()).toEqual([...endpoints].sort());
    expect(new Set(receiver.requests.map(({ claims }) => claims.txn))).toEqual(
      new Set([result.id]),
    );
  });

  it('uses the settings of each endpoint', async () => {
    await bench.publisher.publish('order.created', { id: 7 });
    await receiver.received(3);

    const at = (path: string) => receiver.requests.find((request) => request.path.endsWith(path))!;
    expect(at('/orders').headers).toContainEqual(['X-Shop', 'a']);
    expect(at('/all').claims).toMatchObject({ aud: ['https://all.example'], sub: 'all' });
    expect(at('/deep').claims.aud).toBeUndefined();
  });

  it('publishes to the endpoints of the tenant only', async () => {
    const { deliveries } = await bench.publisher.publish('order.created', {}, { tenant: 'acme' });
    const others = await bench.publisher.publish('order.created', {}, { tenant: 'other' });

    expect(deliveries.map(({ endpointId }) => endpointId)).toEqual(['tenant']);
    expect(others.deliveries).toEqual([]);
  });

  it('records an event once, however often its id is published', async () => {
    const first = await bench.publisher.publish('order.created', {}, { id: 'order-7' });
    const second = await bench.publisher.publish('order.created', {}, { id: 'order-7' });
    await receiver.received(3);
    await bench.reported(3);
    const third = await bench.publisher.publish('order.created', {}, { id: 'order-7' });
    await bench.clock.advance(60_000);

    expect(first.id).toBe('order-7');
    expect(first.duplicate).toBeUndefined();
    expect(second).toEqual({ ...first, duplicate: true });
    expect(third).toEqual({ ...first, duplicate: true });
    expect(receiver.requests).toHaveLength(3);
  });

  it('delays the first attempt by the option delay', async () => {
    await bench.publisher.publish('order.created', {}, { delay: '10s' });
    await bench.clock.advance(9_999);
    expect(bench.reports).toEqual([]);
    await bench.clock.advance(1);

    await bench.reported(3);
  });

  it('resolves once it is recorded, before it is delivered', async () => {
    receiver.script = () => 'hang';

    await expect(bench.publisher.publish('order.created', {})).resolves.toBeDefined();
    await receiver.received(3);
    await bench.clock.advance(15_000);
    await bench.reported(3);
  });

  it('rejects an event that the queue cannot hold, and records nothing', async () => {
    await bench.stop();
    const endpoints = ['a', 'b', 'c'].map((id) => ({ id, url: receiver.url }));
    const queue = new InProcessQueue({ maxPending: 2 });
    bench = await PublisherBench.start({ endpoints, queue });

    await expect(bench.publisher.publish('order.created', {})).rejects.toMatchObject({
      code: 'store_full',
    });
    expect(queue.size).toBe(0);
  });
});

describe('an invalid event', () => {
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  const unreadable = new Proxy(
    {},
    {
      get: () => {
        throw new Error('It cannot be read.');
      },
    },
  );
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const aborted = AbortSignal.abort('changed my mind');

  it.each<[string, string, unknown, object, string]>([
    ['an event of one segment', 'created', {}, {}, 'invalid_option'],
    ['an event with a space', 'order. created', {}, {}, 'invalid_option'],
    ['a pattern', 'order.*', {}, {}, 'invalid_option'],
    ['an event that is too long', `order.${'x'.repeat(128)}`, {}, {}, 'invalid_option'],
    ['a function', 'order.created', () => {}, {}, 'invalid_data'],
    ['a symbol', 'order.created', Symbol('s'), {}, 'invalid_data'],
    ['a BigInt', 'order.created', { total: 1n }, {}, 'invalid_data'],
    ['a cycle', 'order.created', cycle, {}, 'invalid_data'],
    ['a then that throws when it is read', 'order.created', unreadable, {}, 'invalid_data'],
    ['a revoked proxy', 'order.created', revoked.proxy, {}, 'invalid_data'],
    ['bytes without a type', 'order.created', Buffer.from('x'), {}, 'invalid_data'],
    [
      'bytes with an empty type',
      'order.created',
      Buffer.from('x'),
      { contentType: 'csv' },
      'invalid_data',
    ],
    [
      'a content type with a line break',
      'order.created',
      Buffer.from('x'),
      { contentType: 'a/b;\r\nX: y' },
      'invalid_data',
    ],
    [
      'bytes that are not the JSON of their type',
      'order.created',
      Buffer.from('{"total":'),
      { contentType: 'application/json' },
      'invalid_data',
    ],
    [
      'a charset other than UTF-8',
      'order.created',
      { name: 'Zoë' },
      { contentType: 'application/json; charset=iso-8859-1' },
      'invalid_data',
    ],
    ['JSON as CSV', 'order.created', {}, { contentType: 'text/csv' }, 'invalid_data'],
    ['an empty id', 'order.created', {}, { id: '' }, 'invalid_option'],
    ['a long id', 'order.created', {}, { id: 'x'.repeat(256) }, 'invalid_option'],
    ['an id with a control character', 'order.created', {}, { id: 'a\nb' }, 'invalid_option'],
    ['an empty audience', 'order.created', {}, { audience: [] }, 'invalid_option'],
    ['an invalid subject', 'order.created', {}, { subject: 7 }, 'invalid_option'],
    ['an invalid method', 'order.created', {}, { method: 'PUT' }, 'invalid_option'],
    ['an invalid delay', 'order.created', {}, { delay: 'soon' }, 'invalid_option'],
    ['an unknown profile', 'order.created', {}, { profile: 'swt-draft-07' }, 'unsupported_option'],
    ['a transaction', 'order.created', {}, { tx: {} }, 'unsupported_option'],
    ['a misspelt option', 'order.created', {}, { tennant: 'acme' }, 'invalid_option'],
    ['an undefined tenant', 'order.created', {}, { tenant: undefined }, 'invalid_option'],
    ['an undefined transaction', 'order.created', {}, { tx: undefined }, 'invalid_option'],
    ['a delay of millennia', 'order.created', {}, { delay: 1e15 }, 'invalid_option'],
    ['a delay until it expires', 'order.created', {}, { delay: 5, expiresIn: 5 }, 'invalid_option'],
    ['options that are a list', 'order.created', {}, ['acme'], 'invalid_option'],
    ['an aborted event', 'order.created', {}, { signal: aborted }, 'aborted'],
  ])('is refused by publish and send: %s', async (_, event, data, options, code) => {
    const { publisher } = bench;
    const name = event as 'order.created';

    await expect(publisher.publish(name, data, options)).rejects.toMatchObject({ code });
    await expect(publisher.send('all', name, data, options)).rejects.toMatchObject({ code });
    await bench.clock.advance(60_000);
    expect(receiver.requests).toEqual([]);
  });
});

describe('a used id', () => {
  const conflict = { code: 'id_conflict', message: expect.stringContaining('use a new id') };
  const id = 'order-7';

  it.each<[string, string, unknown, object]>([
    ['another event', 'order.shipped', { total: 1 }, {}],
    ['other data', 'order.created', { total: 2 }, {}],
    ['no data', 'order.created', undefined, {}],
    ['another content type', 'order.created', { total: 1 }, { contentType: 'application/a+json' }],
  ])('is refused by publish and send for %s', async (_, event, data, options) => {
    const { publisher } = bench;
    await publisher.publish('order.created', { total: 1 }, { id });
    await bench.reported(3);
    const name = event as 'order.created';

    await expect(publisher.publish(name, data, { ...options, id })).rejects.toMatchObject(conflict);
    await expect(publisher.send('all', name, data, { ...options, id })).rejects.toMatchObject(
      conflict,
    );
    await bench.clock.advance(60_000);
    expect(receiver.requests).toHaveLength(3);
  });

  it('is refused while the first attempt of its event is under way, and after it', async () => {
    const send = (total: number) => bench.publisher.send('all', 'order.created', { total }, { id });
    const first = send(1);

    await expect(send(2)).rejects.toMatchObject(conflict);
    await expect(first).resolves.toMatchObject({ status: 'delivered' });
    await expect(send(2)).rejects.toMatchObject(conflict);
    await expect(bench.publisher.publish('refund.failed', {}, { id })).rejects.toMatchObject(
      conflict,
    );
    expect(receiver.requests).toHaveLength(1);
  });

  it('is refused if its event is delivered while it is being recorded', async () => {
    const enqueue = bench.queue.enqueue.bind(bench.queue);
    bench.queue.enqueue = async (deliveries) => {
      const known = await enqueue(deliveries);
      await bench.reported(1);
      return known;
    };
    const send = (total: number) => bench.publisher.send('all', 'order.created', { total }, { id });
    const [first, second] = await Promise.allSettled([send(1), send(2)]);

    expect(first).toMatchObject({ value: { status: 'delivered', statusCode: 204 } });
    expect(second).toMatchObject({ reason: conflict });
  });

  it('records nothing if only some of the endpoints have received it', async () => {
    await bench.publisher.publish('refund.failed', {}, { id });
    await bench.reported(1);

    await expect(bench.publisher.publish('refund.paid', {}, { id })).rejects.toMatchObject(
      conflict,
    );
    await bench.clock.advance(60_000);
    expect(receiver.requests).toHaveLength(1);
  });
});

describe('an error of the publisher', () => {
  it.each<[string, unknown, object, string]>([
    [
      'a misspelt option',
      {},
      { tennant: 'acme' },
      'publish of "order.created": tennant: unknown option; did you mean "tenant"?',
    ],
    [
      'a BigInt',
      { lines: [{ price: 1 }, { price: 2n }] },
      {},
      'publish of "order.created": The data is not JSON: data.lines[1].price is a BigInt; convert it to a string or a number.',
    ],
    [
      'a BigInt below a member name that may be data',
      { 'ada@example.com': 1n },
      {},
      'publish of "order.created": The data is not JSON: data[…] is a BigInt; convert it to a string or a number.',
    ],
    [
      'a promise',
      Promise.resolve({ id: 1 }),
      {},
      'publish of "order.created": The data is a promise; await it, and pass its value.',
    ],
    [
      'a toJSON method that returns undefined',
      { toJSON: () => undefined },
      {},
      'publish of "order.created": The data is not JSON: its toJSON method does not return a JSON value; correct it.',
    ],
    [
      'a function',
      () => 1,
      {},
      'publish of "order.created": The data is not JSON: it is a function or a symbol; pass a JSON value.',
    ],
  ])('names the event and the location of %s', async (_, data, options, message) => {
    await expect(bench.publisher.publish('order.created', data, options)).rejects.toMatchObject({
      message,
      stack: expect.stringContaining(message),
    });
  });

  it('is invalid_data for undefined, unless options follow', async () => {
    const { publisher } = bench;
    const missing = { code: 'invalid_data', message: expect.stringContaining('undefined') };

    await expect(publisher.publish('order.created', undefined)).rejects.toMatchObject(missing);
    await expect(publisher.send('all', 'order.created', undefined)).rejects.toMatchObject(missing);
    await expect(publisher.sign('all', 'order.created', undefined)).rejects.toMatchObject(missing);
    await publisher.publish('order.created', undefined, { id: 'no-data' });
    await receiver.received(3);
    expect(receiver.requests.map(({ claims }) => claims.txn)).toEqual(Array(3).fill('no-data'));
  });

  it('is unknown_endpoint for an endpoint of another tenant, for sign too', async () => {
    const refused = bench.publisher.sign('tenant', 'order.created', {}, { tenant: 'other' });

    await expect(refused).rejects.toMatchObject({ code: 'unknown_endpoint' });
    await expect(
      bench.publisher.sign('tenant', 'order.created', {}, { tenant: 'acme' }),
    ).resolves.toMatchObject({ method: 'HEAD' });
  });
});

describe('send', () => {
  it('sends to an endpoint that has not subscribed', async () => {
    const result = await bench.publisher.send('orders', 'refund.paid', { id: 7 }, { id: 'r7' });

    expect(result).toEqual({
      id: 'r7',
      status: 'delivered',
      attempts: 1,
      statusCode: 204,
      durationMs: 0,
      receipt: expect.objectContaining({ id: 'r7', method: 'HEAD' }),
    });
    expect(receiver.requests.map(({ path }) => path)).toEqual(['/hooks/orders']);
  });

  it.each([
    ['text', (url: string) => url],
    ['URL', (url: string) => new URL(url)],
  ])('reaches a URL given as %s', async (_, make) => {
    await bench.publisher.send(make(`${receiver.url}?a=b`), 'order.created', {});

    expect(receiver.requests[0]!.path).toBe('/hooks?a=b');
  });

  it.each([
    ['an unknown name', 'crm', 'unknown_endpoint'],
    ['a scheme without a host', 'mailto:a@b.example', 'unknown_endpoint'],
    ['a private address', 'http://10.0.0.1/', 'destination_blocked'],
    ['a metadata service', 'http://169.254.169.254/latest', 'destination_blocked'],
    ['another scheme', 'ftp://crm.example/', 'destination_blocked'],
    ['a URL with a password', 'http://me:hunter2@127.0.0.1/', 'destination_blocked'],
  ])('refuses %s', async (_, destination, code) => {
    await expect(bench.publisher.send(destination, 'order.created', {})).rejects.toMatchObject({
      code,
    });
    await expect(bench.publisher.sign(destination, 'order.created', {})).rejects.toMatchObject({
      code,
    });
  });

  it('fails at once if a name resolves to a blocked address', async () => {
    await bench.stop();
    bench = await PublisherBench.start({ allowedAddresses: [] });
    const url = `http://localhost.:${receiver.port}/`;
    const sent = bench.publisher.send(url, 'order.created', {});

    await expect(
      sent.then(
        ({ failureReason }) => failureReason,
        ({ code }) => code,
      ),
    ).resolves.toBe('destination_blocked');
    expect(receiver.requests).toEqual([]);
  });

  it('returns the same result for the same id, and later the state that the queue knows', async () => {
    receiver.script = () => ({ status: 500 });
    const send = () => bench.publisher.send('all', 'order.created', {}, { id: 'once' });
    const [first, second] = await Promise.all([send(), send()]);

    expect(second).toEqual({ ...first, duplicate: true });
    const { statusCode: _status, receipt: _receipt, ...state } = first;
    expect(await send()).toEqual({ ...state, durationMs: 0, duplicate: true });
    expect(receiver.requests).toHaveLength(1);
    receiver.script = () => ({ status: 204 });
    await bench.clock.advance(60_000);
    await bench.reported(2);
    expect(await send()).toMatchObject({ status: 'delivered', attempts: 2, duplicate: true });
  });

  it('sends an event again whose delivery was erased, also with other data', async () => {
    const send = (total: number) =>
      bench.publisher.send('all', 'order.created', { total }, { id: 'erased' });
    await send(1);
    await bench.module.get(WebhookDeliveries).erase({ eventId: 'erased' });
    const { duplicate, status } = await send(2);

    expect({ duplicate, status }).toEqual({ duplicate: undefined, status: 'delivered' });
    expect(receiver.requests).toHaveLength(2);
  });

  it('rejects once its delivery would be due, if that was erased', async () => {
    const sent = bench.publisher.send('all', 'order.created', {}, { id: 'gone', delay: '1h' });
    const failed = expect(sent).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('no longer knows it'),
    });
    await bench.clock.advance(0);
    await bench.module.get(WebhookDeliveries).erase({ eventId: 'gone' });
    await bench.clock.advance(3_601_000);

    await failed;
  });

  it('rejects once an earlier delivery of its id would be due, if that was erased', async () => {
    await bench.publisher.publish('refund.failed', {}, { id: 'earlier', delay: '10s' });
    const sent = bench.publisher.send('all', 'refund.failed', {}, { id: 'earlier', delay: '1h' });
    const failed = expect(sent).rejects.toMatchObject({ code: 'store_unavailable' });
    await bench.clock.advance(0);
    await bench.module.get(WebhookDeliveries).erase({ eventId: 'earlier' });
    await bench.clock.advance(11_000);

    await failed;
  });

  it('waits for a first attempt that the schedule delays', async () => {
    await bench.stop();
    bench = await PublisherBench.start({ retry: { schedule: ['1h'] } });
    const sent = bench.publisher.send(receiver.url, 'order.created', {});
    await bench.clock.advance(3_600_000);

    expect(await sent).toMatchObject({ status: 'delivered', attempts: 1 });
  });

  it('asks the queue only while a caller waits, and not before the delivery is due', async () => {
    let lookups = 0;
    const find = bench.queue.find.bind(bench.queue);
    bench.queue.find = async (ids) => {
      lookups++;
      return find(ids);
    };
    const [first, second] = [new AbortController(), new AbortController()];
    const send = ({ signal }: AbortController) =>
      bench.publisher.send('all', 'order.created', {}, { id: 'delayed', delay: '1h', signal });
    receiver.script = () => 'hang';
    const sent = Promise.allSettled([send(first), send(second)]);
    await bench.clock.advance(3_599_999);
    expect(lookups).toBe(0);
    first.abort();
    await bench.clock.advance(1_001);
    expect(lookups).toBeGreaterThan(0);
    second.abort();
    const before = lookups;
    await bench.clock.advance(10_000);

    expect(lookups).toBe(before);
    expect(await sent).toMatchObject([
      { reason: { code: 'aborted' } },
      { reason: { code: 'aborted' } },
    ]);
  });

  it('reports the state of a delivery that the queue already knows', async () => {
    await bench.publisher.publish('refund.failed', {}, { id: 'known' });
    await bench.reported(1);
    await bench.clock.advance(0);

    expect(await bench.publisher.send('all', 'refund.failed', {}, { id: 'known' })).toEqual({
      id: 'known',
      status: 'delivered',
      attempts: 1,
      durationMs: 0,
      duplicate: true,
    });
    expect(receiver.requests).toHaveLength(1);
  });

  it('does not wait for a delivery that was put off, such as that of a paused endpoint', async () => {
    await bench.module.get(WebhookEndpoints).pause('all');
    await bench.publisher.publish('refund.failed', {}, { id: 'paused' });
    await bench.reported(1);
    await bench.clock.advance(0);

    expect(await bench.publisher.send('all', 'refund.failed', {}, { id: 'paused' })).toMatchObject({
      status: 'scheduled',
      attempts: 0,
      nextAttemptAt: new Date(bench.clock.now() + 60_000),
      duplicate: true,
    });
  });

  it('aborts only the caller whose signal is aborted', async () => {
    const abort = new AbortController();
    const send = (signal?: AbortSignal) =>
      bench.publisher.send('all', 'order.created', {}, { id: 'shared', signal });
    const first = send(abort.signal);
    const joined = [send(), send()];
    abort.abort();

    await expect(first).rejects.toMatchObject({ code: 'aborted' });
    expect(await Promise.all(joined)).toMatchObject([
      { status: 'delivered' },
      { status: 'delivered' },
    ]);
    expect(receiver.requests).toHaveLength(1);
  });

  it('lets many calls have one signal, without a warning of a leak', async () => {
    // Unlike the one of the test environment, this signal is one that Node warns of.
    const { signal } = new Request(receiver.url);
    await bench.publisher.send('all', 'order.created', {}, { signal });

    expect(getMaxListeners(signal)).toBe(Infinity);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('stops waiting when it is aborted; the delivery continues', async () => {
    receiver.script = () => 'hang';
    const abort = new AbortController();
    const sent = bench.publisher.send('all', 'order.created', {}, { signal: abort.signal });
    await receiver.received(1);
    abort.abort(new Error('gone'));

    await expect(sent).rejects.toMatchObject({ code: 'aborted', cause: new Error('gone') });
    await bench.clock.advance(15_000);
    await bench.reported(1);
    expect(bench.reports[0]!.outcome.type).toBe('retry');
  });
});

describe("an application's own HttpService", () => {
  it.each([
    ['an answer', () => of({ status: 202, headers: {} }), { status: 'delivered', statusCode: 202 }],
    [
      'an error with an answer',
      () => {
        const response = { status: 503, headers: { 'retry-after': '7' } };
        return throwError(() => new AxiosError('no', 'X', undefined, undefined, response as any));
      },
      { status: 'scheduled', statusCode: 503, failureReason: 'http_503' },
    ],
    [
      'an error without an answer',
      () => throwError(() => Object.assign(new Error('no'), { code: 'EAI_AGAIN' })),
      { status: 'scheduled', failureReason: 'dns' },
    ],
    [
      'a synchronous error',
      () => {
        throw new Error('no');
      },
      { status: 'scheduled', failureReason: 'network' },
    ],
    ['nothing', () => of(), { status: 'scheduled', failureReason: 'network' }],
    ['nonsense', () => of('yes'), { status: 'scheduled', failureReason: 'malformed_response' }],
    [
      'an answer whose header is not a string',
      () => of({ status: 503, headers: { 'retry-after': Object.create(null) } }),
      { status: 'scheduled', statusCode: 503 },
    ],
    [
      'an answer that throws when it is read',
      () => of(unreadable('status')),
      { status: 'scheduled', failureReason: 'malformed_response' },
    ],
    [
      'an error that throws when it is read',
      () => throwError(() => unreadable('response')),
      { status: 'scheduled', failureReason: 'network' },
    ],
  ])('may be a fake that returns %s', async (_, request, expected) => {
    await bench.stop();
    const configs: any[] = [];
    bench = await PublisherBench.start(
      {},
      {
        request: ((config: unknown) => {
          configs.push(config);
          return request();
        }) as never,
      },
    );
    const result = await bench.publisher.send('http://127.0.0.1:2/x', 'order.created', {});

    expect(result).toMatchObject(expected);
    expect(configs[0]).toMatchObject({
      method: 'HEAD',
      url: 'http://127.0.0.1:2/x',
      maxRedirects: 0,
      proxy: false,
      decompress: false,
      maxContentLength: 65_536,
      responseType: 'arraybuffer',
      adapter: 'http',
      timeout: 0,
    });
  });

  it('keeps its own adapter, with a warning that its connections are not checked', async () => {
    const urls: unknown[] = [];
    bench.http.axiosRef.defaults.adapter = async (config) => {
      urls.push(config.url);
      return { data: '', status: 204, statusText: '', headers: {}, config };
    };
    await bench.module.init();
    const result = await bench.publisher.send('all', 'order.created', {});
    delete bench.http.axiosRef.defaults.adapter;

    expect(result.status).toBe('delivered');
    expect(urls).toEqual([`${receiver.url}/all`]);
    expect(bench.logs('warn')).toEqual([expect.stringContaining('egress guard')]);
  });
});

function unreadable(member: string): object {
  return Object.defineProperty({}, member, {
    get() {
      throw new Error('an error of the application');
    },
  });
}
