import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { WebhookEndpoints } from 'nestjs-webhook-token';
import { TestClock } from 'nestjs-webhook-token/testing';
import { throwError } from 'rxjs';
import { PublisherBench } from './publisher-bench.js';
import { WireReceiver, type WireAnswer } from './wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  bench = await PublisherBench.start({
    endpoints: [
      { id: 'crm', url: receiver.url, events: ['order.*'] },
      { id: 'stable', url: receiver.url, events: ['refund.*'], jti: 'delivery' },
    ],
  });
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

describe('a delivery that fails', () => {
  it('is attempted ten times on schedule, and then given up', async () => {
    receiver.script = () => ({ status: 500 });
    const start = bench.clock.now();
    const times: number[] = [];
    await bench.publisher.publish('order.created', { id: 7 });
    for (let attempt = 1; attempt <= 10; attempt++) {
      await bench.reported(attempt);
      times.push(bench.clock.now() - start);
      const { outcome } = bench.reports.at(-1)!;
      if (outcome.type === 'retry') await bench.clock.advance(outcome.at - bench.clock.now());
    }

    const waits = times.map((time, index) => time - (times[index - 1] ?? 0));
    const hours = [2, 5, 10, 14, 20, 24].map((count) => count * HOUR);
    expect(waits).toEqual([0, 5_000, 5 * MINUTE, 30 * MINUTE, ...hours]);
    expect(bench.reports.at(-1)!.outcome).toEqual({
      type: 'dead',
      reason: 'http_500',
      attempts: 10,
    });
    await bench.clock.advance(0);
    expect(await bench.dead()).toMatchObject([{ reason: 'http_500', attempts: 10 }]);
    expect(bench.logs('warn')).toEqual([
      expect.stringMatching(/^endpoint "crm" keeps failing/),
      expect.stringMatching(
        /"order.created" to endpoint "crm" is dead after 10 attempts: http_500$/,
      ),
    ]);
  });

  it('is signed again for every attempt: new times and jti, the same txn and bytes', async () => {
    receiver.script = () => ({ status: 500 });
    const { id } = await bench.publisher.publish('order.created', ['x']);
    await attempts(3);

    const claims = receiver.requests.map((request) => request.claims);
    expect(new Set(claims.map(({ jti }) => jti)).size).toBe(3);
    expect(new Set(claims.map(({ txn }) => txn))).toEqual(new Set([id]));
    expect(claims.map(({ iat }) => iat - claims[0].iat)).toEqual([0, 5, 305]);
    expect(new Set(receiver.requests.map(({ body }) => body.toString()))).toEqual(
      new Set(['["x"]']),
    );
  });

  it('keeps its jti if the endpoint is configured with jti: delivery', async () => {
    receiver.script = () => ({ status: 500 });
    const { deliveries } = await bench.publisher.publish('refund.paid', ['x']);
    await attempts(2);

    expect(receiver.requests.map(({ claims }) => claims.jti)).toEqual([
      deliveries[0]!.id,
      deliveries[0]!.id,
    ]);
  });

  it('ends once it is acknowledged', async () => {
    receiver.script = (_, index) => ({ status: index < 2 ? 503 : 204 });
    await bench.publisher.publish('order.created', ['x']);
    await attempts(3);
    await bench.clock.advance(100 * HOUR);

    expect(receiver.requests).toHaveLength(3);
    expect(bench.reports.at(-1)!.outcome).toEqual({ type: 'delivered' });
    expect(bench.logs('warn')).toEqual([]);
  });
});

describe('the outcome of an attempt', () => {
  it('is not charged to the endpoint if this process has too many open files', async () => {
    await bench.stop();
    const failure = Object.assign(new Error('connect EMFILE'), { code: 'EMFILE' });
    bench = await PublisherBench.start({}, { request: () => throwError(() => failure) });
    for (let index = 0; index < 7; index++) {
      expect(await bench.publisher.send(receiver.url, 'order.created', ['x'])).toMatchObject({
        status: 'scheduled',
        failureReason: 'too_many_open_files',
      });
    }

    expect(bench.logs('warn')).toEqual([expect.stringContaining('Raise the limit')]);
  });

  it('stays the same if a logger throws', async () => {
    receiver.script = (_, index) => ({ status: index === 0 ? 500 : 204 });
    const fail = (): never => {
      throw new Error('an error of the application');
    };
    bench.module.useLogger({ log: fail, error: fail, warn: fail, debug: fail });
    await bench.publisher.publish('order.created', ['x'], { id: 'once' });
    await attempts(2);
    await bench.clock.advance(HOUR);

    expect(bench.reports.map(({ outcome }) => outcome.type)).toEqual(['retry', 'delivered']);
    expect(receiver.requests).toHaveLength(2);
  });

  it('is a valid time, whatever the schedule returns', async () => {
    receiver.script = () => ({ status: 500 });
    bench = await restarted({
      retry: { jitter: 0, schedule: (attempt) => (attempt === 1 ? 0 : Number.MAX_VALUE) },
    });

    expect(await bench.publisher.send('crm', 'order.created', ['x'])).toMatchObject({
      status: 'scheduled',
      nextAttemptAt: new Date(bench.clock.now() + 30 * 24 * HOUR),
    });
  });
});

describe('the answer to a first POST', () => {
  it.each<[string, WireAnswer, object]>([
    ...[200, 201, 202, 204, 206].map((status): [string, WireAnswer, object] => [
      String(status),
      { status },
      { status: 'delivered', statusCode: status, attempts: 1 },
    ]),
    ...[300, 302, 400, 401, 403, 404, 405, 413, 418, 422, 500, 502, 504].map(
      (status): [string, WireAnswer, object] => [
        String(status),
        { status },
        { status: 'scheduled', failureReason: `http_${status}`, wait: 5_000 },
      ],
    ),
    ['409', { status: 409 }, { status: 'scheduled', wait: 5_000 }],
    ['409 with 30 s', later(409, '30'), { status: 'scheduled', wait: 30_000 }],
    ['429', { status: 429 }, { status: 'scheduled', wait: MINUTE }],
    ['429 with an hour', later(429, '3600'), { status: 'scheduled', wait: HOUR }],
    ['503', { status: 503 }, { status: 'scheduled', wait: 5_000 }],
    ['503 with 2 min', later(503, '120'), { status: 'scheduled', wait: 2 * MINUTE }],
    [
      '503 with a date',
      later(503, 'Thu, 01 Jan 2026 00:10:00 GMT'),
      { status: 'scheduled', wait: 10 * MINUTE },
    ],
    ['503 with an invalid Retry-After', later(503, 'soon'), { status: 'scheduled', wait: 5_000 }],
    ['503 with 20 digits', later(503, '9'.repeat(20)), { status: 'scheduled', wait: 24 * HOUR }],
    ['410', { status: 410 }, { status: 'failed', failureReason: 'http_410', attempts: 1 }],
    ['200 with a large body', { status: 200, body: 'x'.repeat(70_000) }, { status: 'delivered' }],
  ])('determines the outcome: %s', async (_, answer, expected) => {
    receiver.script = () => answer;
    const start = bench.clock.now();
    const { nextAttemptAt, ...result } = await bench.publisher.send('crm', 'order.created', ['x']);

    const wait = nextAttemptAt === undefined ? undefined : nextAttemptAt.getTime() - start;
    expect({ ...result, wait }).toMatchObject(expected);
  });
});

describe('a first attempt without an answer', () => {
  it('is retried after a reset', async () => {
    receiver.script = () => 'reset';

    expect(await bench.publisher.send('crm', 'order.created', ['x'])).toMatchObject({
      status: 'scheduled',
      failureReason: 'connection_reset',
    });
  });

  it('is retried after a minute if it timed out', async () => {
    receiver.script = () => 'hang';
    const sent = bench.publisher.send('crm', 'order.created', ['x']);
    await receiver.received(1);
    await bench.clock.advance(15_000);

    expect(await sent).toMatchObject({
      status: 'scheduled',
      failureReason: 'timeout',
      durationMs: 15_000,
      nextAttemptAt: new Date(bench.clock.now() + MINUTE),
    });
  });

  it('counts an answer that arrived in time while the process was stalled', async () => {
    const clock = new TestClock();
    const wakes: (() => void)[] = [];
    jest.spyOn(clock, 'wakeAt').mockImplementation((_, wake) => {
      wakes.push(wake);
      return () => {};
    });
    const stalled = await PublisherBench.start({}, undefined, clock);
    receiver.script = () => {
      // The timers are due before the next data is read.
      setTimeout(() => wakes.forEach((wake) => wake()));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      return { status: 204 };
    };
    const sent = await stalled.publisher.send(receiver.url, 'order.created', ['x']);
    await stalled.stop();

    expect(sent).toMatchObject({ status: 'delivered' });
  });

  it('times out if the answer arrives too slowly', async () => {
    receiver.script = () => 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndrip';
    const sent = bench.publisher.send('crm', 'order.created', ['x']);
    await receiver.received(1);
    await bench.clock.advance(15_000);

    expect(await sent).toMatchObject({ failureReason: 'timeout' });
  });

  it('is retried if the connection is refused', async () => {
    const gone = await WireReceiver.start();
    const { url } = gone;
    await gone.stop();

    expect(await bench.publisher.send(url, 'order.created', ['x'])).toMatchObject({
      status: 'scheduled',
      failureReason: 'connection_refused',
    });
  });

  it('is retried if the host does not speak TLS', async () => {
    const plain = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    }).listen(0, '127.0.0.1');
    await once(plain, 'listening');
    const url = `https://127.0.0.1:${(plain.address() as AddressInfo).port}/`;
    const result = await bench.publisher.send(url, 'order.created', ['x']);
    plain.close();

    expect(result).toMatchObject({ status: 'scheduled', failureReason: 'tls' });
  });
});

describe('the other deliveries of an endpoint', () => {
  it('wait after 429, without using an attempt', async () => {
    receiver.script = (_, index) => (index === 0 ? { status: 429 } : { status: 204 });
    await bench.publisher.publish('order.created', ['first']);
    await bench.reported(1);
    await bench.publisher.publish('order.updated', ['second']);
    await bench.reported(2);

    expect(receiver.requests).toHaveLength(1);
    expect(bench.reports[1]!.outcome).toEqual({
      type: 'defer',
      at: bench.clock.now() + MINUTE,
      reason: 'endpoint_overloaded',
    });
    await bench.clock.advance(MINUTE);
    await bench.reported(4);

    const deferred = bench.reports.filter(({ delivery }) => delivery.event === 'order.updated');
    expect(deferred.at(-1)).toMatchObject({
      outcome: { type: 'delivered' },
      attempt: { attempt: 1 },
    });
  });

  it('wait after 429, also once an earlier attempt is acknowledged', async () => {
    receiver.script = (_, index) =>
      (['hang', later(429, '600')] as const)[index] ?? { status: 204 };
    const first = bench.publisher.send('crm', 'order.created', ['first']);
    await receiver.received(1);
    await bench.publisher.send('crm', 'order.created', ['second']);
    receiver.answerHeld({ status: 204 });
    await first;

    expect(await bench.publisher.send('crm', 'order.created', ['third'])).toMatchObject({
      status: 'scheduled',
      attempts: 0,
      failureReason: 'endpoint_overloaded',
    });
    expect(receiver.requests).toHaveLength(2);
  });

  it('look again after ten minutes if a receiver asks to wait for a day', async () => {
    receiver.script = (_, index) => (index === 0 ? later(429, '86400') : { status: 204 });
    await bench.publisher.send('crm', 'order.created', ['first']);
    const second = await bench.publisher.send('crm', 'order.created', ['second']);
    await bench.module.get(WebhookEndpoints).enable('crm');
    await bench.clock.advance(10 * MINUTE);
    await receiver.received(2);

    expect(second).toMatchObject({
      status: 'scheduled',
      attempts: 0,
      failureReason: 'endpoint_overloaded',
    });
    expect(bench.reports.at(-1)).toMatchObject({
      delivery: { eventId: second.id },
      outcome: { type: 'delivered' },
    });
  });

  it('wait a minute after a timeout', async () => {
    receiver.script = () => 'hang';
    const first = bench.publisher.send('crm', 'order.created', ['first']);
    await receiver.received(1);
    await bench.clock.advance(15_000);
    await first;

    expect(await bench.publisher.send('crm', 'order.created', ['second'])).toMatchObject({
      status: 'scheduled',
      attempts: 0,
      nextAttemptAt: new Date(bench.clock.now() + MINUTE),
    });
    expect(receiver.requests).toHaveLength(1);
  });

  it('wait no longer than a 503 requests, and other endpoints do not wait', async () => {
    receiver.script = (_, index) => (index === 0 ? later(503, '20') : { status: 204 });
    await bench.publisher.send('crm', 'order.created', ['first']);

    expect(await bench.publisher.send('crm', 'order.created', ['second'])).toEqual({
      id: expect.any(String),
      status: 'scheduled',
      attempts: 0,
      failureReason: 'endpoint_overloaded',
      durationMs: 0,
      nextAttemptAt: new Date(bench.clock.now() + 20_000),
    });
    expect(await bench.publisher.send('stable', 'order.created', ['third'])).toMatchObject({
      status: 'delivered',
    });
    await bench.clock.advance(20_000);
    await receiver.received(4);
  });

  it('are given up after 410, once with a warning', async () => {
    receiver.script = () => ({ status: 410 });
    await bench.publisher.send('crm', 'order.created', ['first']);
    const { deliveries } = await bench.publisher.publish('order.created', ['second']);

    expect(deliveries).toEqual([]);
    expect(await bench.publisher.send('crm', 'order.created', ['third'])).toMatchObject({
      status: 'failed',
      attempts: 0,
      failureReason: 'endpoint_disabled',
    });
    expect(receiver.requests).toHaveLength(1);
    expect(bench.logs('warn').filter((line) => line.includes('410 Gone'))).toHaveLength(1);
  });

  it('are redelivered with the same txn', async () => {
    receiver.script = () => ({ status: 500 });
    bench = await restarted({ retry: { attempts: 1, jitter: 0 } });
    const { id } = await bench.publisher.publish('order.created', ['x']);
    await bench.reported(1);
    await bench.clock.advance(0);
    receiver.script = () => ({ status: 204 });
    const dead = await bench.dead();
    await bench.queue.redeliver(dead.map(({ delivery }) => delivery.id));
    await bench.reported(2);

    expect(receiver.requests.map(({ claims }) => claims.txn)).toEqual([id, id]);
    expect(bench.reports.at(-1)!.outcome).toEqual({ type: 'delivered' });
  });
});

async function restarted(options: Parameters<typeof PublisherBench.start>[0]) {
  await bench.stop();
  return PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }], ...options });
}

/** Advances the clock to each retry until this many attempts were made. */
async function attempts(count: number): Promise<void> {
  for (let attempt = 1; attempt <= count; attempt++) {
    await bench.reported(attempt);
    const { outcome } = bench.reports[attempt - 1]!;
    if (attempt < count && outcome.type === 'retry') {
      await bench.clock.advance(outcome.at - bench.clock.now());
    }
  }
}

function later(status: number, retryAfter: string): WireAnswer {
  return { status, headers: { 'Retry-After': retryAfter } };
}
