import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Agent } from 'node:http';
import { HttpModule } from '@nestjs/axios';
import { BadGatewayException } from '@nestjs/common';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { AxiosError } from 'axios';
import { WebhookSender } from '../../lib/sending/webhook.sender.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';
import { answer, lastAnswer, NO_ANSWERS, OK } from './hostile-answers.js';
import { HostileReceiver } from './hostile-receiver.js';

const NO_CONTENT = 'HTTP/1.1 204 x\r\n\r\n';

let bench: PublisherBench;
let good: WireReceiver;
let hostile: HostileReceiver | undefined;

beforeEach(async () => {
  good = await WireReceiver.start();
});
afterEach(async () => {
  await bench.stop();
  await Promise.all([good.stop(), hostile?.stop()]);
  hostile = undefined;
});

it('loads axios ahead of the timeout of the first attempt', async () => {
  bench = await PublisherBench.start({}, undefined, undefined, 'own');
  const sender = bench.module.get(WebhookSender);
  const attempt = sender.attempt.bind(sender);
  sender.attempt = async (...given) => {
    const running = attempt(...given);
    bench.clock.set(bench.clock.now() + 60_000);
    return running;
  };

  expect(await bench.publisher.send(good.url, 'order.created', ['x'])).toMatchObject({
    status: 'delivered',
    durationMs: 0,
  });
});

describe.each([
  ["the module's own", () => 'own' as const],
  ["an application's", () => HttpModule.register({})],
])('a delivery with %s HttpService', (_, httpModule) => {
  beforeEach(async () => {
    bench = await PublisherBench.start({}, undefined, undefined, httpModule());
  });

  /** An array is not sent inline, so it is a POST. */
  const send = async (url: string) => bench.publisher.send(url, 'order.created', ['x']);

  it.each([
    ['a few bytes', Buffer.from([0, 1, 0x7f, 0x80, 0xc3, 0xa9, 255, 13, 10])],
    ['more than one segment', Buffer.alloc(40_000, 'é\xff')],
    ['zero bytes', Buffer.alloc(0)],
  ])('has the exact bytes and its own headers only: %s', async (__, bytes) => {
    const contentType = 'application/octet-stream';
    await bench.publisher.send(good.url, 'report.ready', bytes, { contentType });

    const [request] = good.requests;
    expect(request).toMatchObject({ method: 'POST', body: bytes });
    expect(request!.headers.toSorted(([a], [b]) => a.localeCompare(b))).toEqual([
      ['Accept', '*/*'],
      ['Accept-Encoding', 'identity'],
      ['Authorization', `Bearer ${request!.token}`],
      ['Connection', 'keep-alive'],
      ['Content-Length', String(bytes.length)],
      ['Content-Type', contentType],
      ['Host', `127.0.0.1:${good.port}`],
      ['User-Agent', 'nestjs-webhook-token'],
    ]);
  });

  it('shares its connection with others, and a shutdown closes it', async () => {
    hostile = await HostileReceiver.start(answer(NO_CONTENT));
    for (let count = 0; count < 10; count++) {
      expect(await send(hostile.url)).toMatchObject({ status: 'delivered' });
    }

    expect(hostile.requests).toBe(10);
    expect(hostile.connections).toBeLessThanOrEqual(2);
    await bench.publisher.beforeApplicationShutdown();
    await hostile.released();
  });

  it('is sent on another connection if the server closes an idle one meanwhile', async () => {
    hostile = await HostileReceiver.start((socket, request) => {
      if (request % 2 === 0) socket.resetAndDestroy();
      else socket.write(NO_CONTENT);
    });
    const results = [await send(hostile.url), await send(hostile.url)];
    // A HEAD: a closed connection says nothing about the method.
    const small = await bench.publisher.send(hostile.url, 'order.created', { id: 1 });

    expect(results).toMatchObject([{ status: 'delivered' }, { status: 'delivered' }]);
    expect(small).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(hostile.connections).toBe(3);
    expect(hostile.requests).toBe(5);
  });

  it.each(NO_ANSWERS)('fails after %s', async (__, behave, failureReason) => {
    hostile = await HostileReceiver.start(behave);

    expect(await send(hostile.url)).toMatchObject({ status: 'scheduled', failureReason });
    await hostile.released();
  });

  it('is cut off at the deadline if the answer does not end', async () => {
    hostile = await HostileReceiver.start(answer(`${OK}Content-Length: 100\r\n\r\nabc`));
    const sent = send(hostile.url);
    await hostile.received(1);
    await bench.clock.advance(15_000);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'timeout' });
    await hostile.released();
  });

  it.each<[string, object, number | undefined]>([
    ['410 x', { status: 'failed', statusCode: 410 }, undefined],
    ['503 x\r\nRetry-After: 100', { status: 'scheduled', statusCode: 503 }, 100_000],
  ])('is refused by an answer that is cut off: %j', async (head, result, wait) => {
    hostile = await HostileReceiver.start(
      lastAnswer(`HTTP/1.1 ${head}\r\nContent-Length: 50\r\n\r\nabc`),
    );
    const sent = await send(hostile.url);

    expect(sent).toMatchObject(result);
    expect(sent.nextAttemptAt?.getTime()).toBe(wait && bench.clock.now() + wait);
    await hostile.released();
  });

  it('is refused at the deadline by an answer that does not end', async () => {
    const head = '429 x\r\nRetry-After: 300\r\nTransfer-Encoding: chunked';
    hostile = await HostileReceiver.start(answer(`HTTP/1.1 ${head}\r\n\r\n`));
    let heads = (): void => {};
    const answered = new Promise<void>((resolve) => (heads = resolve));
    subscribe('http.client.response.finish', heads);
    const sent = send(hostile.url);
    await answered;
    unsubscribe('http.client.response.finish', heads);
    await bench.clock.advance(15_000);
    const { statusCode, nextAttemptAt } = await sent;

    expect(statusCode).toBe(429);
    expect(nextAttemptAt!.getTime()).toBe(bench.clock.now() + 300_000);
    await hostile.released();
  });

  it('is delivered after interim answers', async () => {
    hostile = await HostileReceiver.start(answer(`HTTP/1.1 100 Continue\r\n\r\n${NO_CONTENT}`));

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
  });

  it('reports a refused connection', async () => {
    expect(await send('http://127.0.0.1:2/')).toMatchObject({
      failureReason: 'connection_refused',
    });
  });

  it.each([
    ['adds a header', 'X-Trace', 'abc', '/hooks'],
    ['adds a parameter of the query', undefined, undefined, '/hooks?trace=1'],
  ])('respects an interceptor that %s', async (__, name, value, path) => {
    bench.http.axiosRef.interceptors.request.use((config) => {
      if (name === undefined) config.params = { trace: 1 };
      else config.headers.set(name, value);
      return config;
    });

    expect(await send(good.url)).toMatchObject({ status: 'delivered' });
    const [request] = good.requests;
    expect(request!.path).toBe(path);
    expect(new Map(request!.headers).get('X-Trace')).toBe(value);
  });

  it('respects an interceptor of answers', async () => {
    bench.http.axiosRef.interceptors.response.use((response) => ({ ...response, status: 410 }));

    expect(await send(good.url)).toMatchObject({ status: 'failed', statusCode: 410 });
  });

  it('reports an error of an interceptor of requests once, without its message', async () => {
    bench.http.axiosRef.interceptors.request.use(() => {
      throw new TypeError('hunter2');
    });
    const results = [await send(good.url), await send(good.url)];

    expect(results).toEqual([
      expect.objectContaining({ status: 'scheduled', failureReason: 'network' }),
      expect.objectContaining({ status: 'scheduled', failureReason: 'network' }),
    ]);
    expect(good.requests).toEqual([]);
    expect(bench.logs('warn')).toEqual([
      expect.stringMatching(/^HttpService threw TypeError.*\(network\).*httpModule/),
    ]);
    expect(JSON.stringify(bench.logged)).not.toContain('hunter2');
  });

  it.each([
    ['TypeError', () => new TypeError('hunter2')],
    ['AxiosError', () => new AxiosError('hunter2')],
  ])('counts as delivered if an interceptor throws a %s after a 204', async (__, error) => {
    bench.http.axiosRef.interceptors.response.use(() => {
      throw error();
    });

    expect(await send(good.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
    expect(good.requests).toHaveLength(1);
    expect(bench.logs('warn')).toEqual([]);
  });

  it('fails as the receiver answered if an interceptor throws an error of its own', async () => {
    bench.http.axiosRef.interceptors.response.use(({ status }) => {
      throw new BadGatewayException(`status ${status}`);
    });
    good.script = (__, index) => ({ status: index === 0 ? 500 : 502 });
    const results = [await send(good.url), await send(good.url)];

    expect(results).toEqual([
      expect.objectContaining({ status: 'scheduled', failureReason: 'http_500' }),
      expect.objectContaining({ status: 'scheduled', failureReason: 'http_502' }),
    ]);
    expect(bench.logs('warn')).toEqual([]);
  });

  it('fails as the connection did if an interceptor throws an error of its own', async () => {
    bench.http.axiosRef.interceptors.response.use(undefined, () => {
      throw new BadGatewayException();
    });

    expect(await send('http://127.0.0.1:2/')).toMatchObject({
      status: 'scheduled',
      failureReason: 'connection_refused',
    });
  });

  it.each([false, true])(
    'reports the timeout of an interceptor as such (clarifyTimeoutError: %p)',
    async (clarifyTimeoutError) => {
      bench.http.axiosRef.interceptors.request.use((config) =>
        Object.assign(config, { timeout: 50, transitional: { clarifyTimeoutError } }),
      );
      good.script = () => 'hang';

      expect(await send(good.url)).toMatchObject({
        status: 'scheduled',
        failureReason: 'timeout',
      });
      expect(bench.logs('warn')).toEqual([]);
    },
  );

  it('respects an interceptor that decides which answers are errors, to repeat them', async () => {
    const { axiosRef } = bench.http;
    axiosRef.interceptors.request.use((config) =>
      Object.assign(config, { validateStatus: () => false }),
    );
    axiosRef.interceptors.response.use(undefined, async (error: AxiosError) =>
      error.response?.status === 503 ? axiosRef.request(error.config!) : error.response,
    );
    good.script = (__, index) => ({ status: index === 0 ? 503 : 204 });

    expect(await send(good.url)).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(good.requests).toHaveLength(2);
    expect(bench.logs('warn')).toEqual([]);
  });

  it('passes a real AbortSignal to interceptors', async () => {
    const signals: unknown[] = [];
    bench.http.axiosRef.interceptors.request.use((config) => {
      signals.push(config.signal);
      return config;
    });
    await send(good.url);

    expect(signals).toEqual([expect.any(AbortSignal)]);
  });
});

describe('a delivery over an agent of the application', () => {
  const agent = new Agent({ keepAlive: true });
  beforeEach(async () => {
    bench = await PublisherBench.start();
    bench.http.axiosRef.interceptors.request.use((config) =>
      Object.assign(config, { httpAgent: agent }),
    );
  });
  afterEach(() => agent.destroy());

  const LONG = `Content-Length: 70000\r\n\r\n${'x'.repeat(70_000)}`;
  it.each<[string, string, object]>([
    ['a long 200', `${OK}${LONG}`, { status: 'delivered', statusCode: 200 }],
    ['a long 410', `HTTP/1.1 410 x\r\n${LONG}`, { status: 'failed', statusCode: 410 }],
    ['a long 429', `HTTP/1.1 429 x\r\n${LONG}`, { status: 'scheduled', statusCode: 429 }],
    [
      'a change of the protocol',
      'HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n',
      { status: 'scheduled', failureReason: 'malformed_response' },
    ],
  ])('is judged like others: %s', async (_, text, result) => {
    hostile = await HostileReceiver.start(answer(text));

    expect(await bench.publisher.send(hostile.url, 'order.created', ['x'])).toMatchObject(result);
    await hostile.released();
  });

  it('shares its connections', async () => {
    hostile = await HostileReceiver.start(answer(NO_CONTENT));
    for (const id of [1, 2, 3]) {
      await bench.publisher.send(hostile.url, 'order.created', { id });
    }

    expect([hostile.requests, hostile.connections]).toEqual([3, 1]);
    expect(Object.values(agent.freeSockets)).toHaveLength(1);
  });
});

describe('a HEAD', () => {
  const FORGED = 'HTTP/1.1 204 forged\r\n\r\n';
  const head = async (data: object) =>
    bench.publisher.send(hostile!.url, 'order.created', data, { method: 'HEAD' });

  /** Answers the first HEAD, and writes a late body when the second one has arrived on the same connection, if it has. */
  async function startLate(first: string): Promise<void> {
    hostile = await HostileReceiver.start((socket, request) => {
      if (request === 1) socket.write(first);
      else if (hostile!.connections === 1) socket.write(FORGED);
      else socket.write('HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n');
    });
  }

  it.each([
    ['over node:http', undefined],
    ['over the adapter of axios', { trace: 1 }],
  ])('never gets the late body of the HEAD before it as its answer, %s', async (_, params) => {
    bench = await PublisherBench.start();
    bench.http.axiosRef.interceptors.request.use((config) => Object.assign(config, { params }));
    await startLate(`HTTP/1.1 503 x\r\nContent-Length: ${FORGED.length}\r\n\r\n`);

    expect(await head({ id: 1 })).toMatchObject({ status: 'scheduled', statusCode: 503 });
    expect(await head({ id: 2 })).toMatchObject({ status: 'scheduled', statusCode: 503 });
    expect([hostile!.requests, hostile!.connections]).toEqual([2, 2]);
  });

  it.each(['HTTP/1.1 204 x\r\n\r\n', 'HTTP/1.1 202 x\r\nContent-Length: 0\r\n\r\n'])(
    'shares its connection with the next one after %j',
    async (text) => {
      bench = await PublisherBench.start();
      hostile = await HostileReceiver.start(answer(text));
      for (const id of [1, 2, 3]) {
        expect(await head({ id })).toMatchObject({ status: 'delivered' });
      }

      expect([hostile.requests, hostile.connections]).toEqual([3, 1]);
    },
  );
});
