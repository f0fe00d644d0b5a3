import dns from 'node:dns';
import http from 'node:http';
import https from 'node:https';
import { mkdtempSync, rmSync } from 'node:fs';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HttpModule } from '@nestjs/axios';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { ExpressAdapter } from '@nestjs/platform-express';
import { getAdapter, type AxiosRequestConfig, type InternalAxiosRequestConfig } from 'axios';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { SECRET, startApp } from '../fixtures/receiver-app.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

/** No test allows this address: a request that arrives here bypassed the guard. */
let inside: WireReceiver;
let outside: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  // These tests use no resolver, except for the address of a listening server.
  jest.spyOn(dns, 'lookup').mockImplementation((host: string, ...rest: unknown[]) => {
    const done = rest.at(-1) as (...args: unknown[]) => void;
    if (isIP(host) === 0) done(Object.assign(new Error(host), { code: 'ENOTFOUND' }));
    else done(null, host, isIP(host));
  });
  inside = await WireReceiver.start();
  outside = await WireReceiver.start();
  bench = await PublisherBench.start({ allowedAddresses: [] });
});
afterEach(async () => {
  bench.http.axiosRef.interceptors.request.clear();
  await bench.stop();
  await Promise.all([inside.stop(), outside.stop()]);
  jest.restoreAllMocks();
});

const loopback = (_host: string, _options: unknown, done: (...args: unknown[]) => void): void =>
  done(null, [{ address: '127.0.0.1', family: 4 }]);

/** A name of the application's own network. */
const urlInside = (): string => `http://inside.invalid:${inside.port}/hooks`;

describe('a default of HttpService that would bypass the guard', () => {
  it.each<[string, () => AxiosRequestConfig]>([
    ['agents of its own', () => ({ httpAgent: new http.Agent(), httpsAgent: new https.Agent() })],
    ['a proxy', () => ({ proxy: { host: '127.0.0.1', port: outside.port } })],
    ['a transport', () => ({ transport: { request: http.request } }) as AxiosRequestConfig],
    ['HTTP/2', () => ({ httpVersion: 2 }) as AxiosRequestConfig],
    ['another adapter of axios', () => ({ adapter: 'fetch' })],
    ['a list of adapters', () => ({ adapter: ['fetch', 'http'] })],
    ['a lookup', () => ({ lookup: loopback }) as unknown as AxiosRequestConfig],
    ['redirects', () => ({ maxRedirects: 5, beforeRedirect: () => {} })],
    ['a base URL', () => ({ baseURL: inside.url, allowAbsoluteUrls: false })],
    ['a Unix socket', () => ({ socketPath: '/var/run/docker.sock' })],
  ])('is overridden: %s', async (_, preset) => {
    const { defaults } = bench.http.axiosRef;
    const before = { ...defaults };
    Object.assign(defaults, preset());
    const result = await bench.publisher.send('http://partner.invalid/', 'order.created', [1]);
    const refused = bench.publisher.send(inside.url, 'order.created', [1]);
    await expect(refused).rejects.toMatchObject({ code: 'destination_blocked' });
    for (const key of Object.keys(defaults)) delete (defaults as Record<string, unknown>)[key];
    Object.assign(defaults, before);

    // The guard's own lookup does not resolve the name, whatever another resolver would answer.
    expect(result).toMatchObject({ status: 'scheduled', failureReason: 'dns' });
    expect([inside.connections, outside.connections]).toEqual([0, 0]);
    expect(bench.logs('warn')).toEqual([]);
  });
});

describe('an interceptor of HttpService', () => {
  function intercept(change: (config: InternalAxiosRequestConfig) => void): void {
    bench.http.axiosRef.interceptors.request.use((config) => {
      change(config);
      return config;
    });
  }
  const agentOf = (lookup: unknown): http.Agent => new http.Agent({ lookup } as http.AgentOptions);

  it.each<[string, (config: InternalAxiosRequestConfig) => void, string]>([
    ['an agent', (config) => (config.httpAgent = agentOf(loopback)), 'httpAgent'],
    [
      'an adapter',
      (config) =>
        (config.adapter = async (given) =>
          getAdapter('http')({ ...given, httpAgent: agentOf(loopback) })),
      'adapter',
    ],
    [
      'a transport',
      (config) => {
        const request = (options: http.RequestOptions, answer: never): http.ClientRequest =>
          http.request({ ...options, agent: agentOf(loopback) }, answer);
        Object.assign(config, { transport: { request } });
      },
      'transport',
    ],
  ])('that sets %s is respected with one warning', async (_, change, setting) => {
    intercept(change);
    const results = [
      await bench.publisher.send(urlInside(), 'order.created', [1]),
      await bench.publisher.send(urlInside(), 'order.created', [2]),
    ];

    expect(results).toEqual([
      expect.objectContaining({ status: 'delivered' }),
      expect.objectContaining({ status: 'delivered' }),
    ]);
    expect(inside.requests).toHaveLength(2);
    expect(bench.logs('warn')).toEqual([
      expect.stringContaining(`replaces ${setting}: the egress`),
    ]);
  });

  it.each<[string, string[], string, number]>([
    ['if its address is not allowed', [], 'destination_blocked', 0],
    ['if its address is allowed', ['127.0.0.1'], 'delivered', 1],
  ])(
    'that sets a proxy reaches it only %s, with a warning',
    async (_, allowed, outcome, requests) => {
      await bench.stop();
      bench = await PublisherBench.start({ allowedAddresses: allowed });
      intercept((config) => (config.proxy = { host: '127.0.0.1', port: outside.port }));
      const { status, failureReason } = await bench.publisher.send(
        urlInside(),
        'order.created',
        [1],
      );

      expect(failureReason ?? status).toBe(outcome);
      expect(outside.requests.map(({ path }) => path)).toEqual(Array(requests).fill(urlInside()));
      expect(bench.logs('warn')).toEqual(
        expect.arrayContaining([expect.stringContaining('replaces proxy: the egress')]),
      );
    },
  );

  it('that sets a Unix socket is stopped by the guard', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'bypass-'));
    const socketPath = join(directory, 'socket');
    let connections = 0;
    const server = http.createServer().on('connection', () => connections++);
    await new Promise<void>((resolve) => server.listen(socketPath, resolve));
    intercept((config) => (config.socketPath = socketPath));
    const result = await bench.publisher.send(urlInside(), 'order.created', [1]);
    server.close();
    rmSync(directory, { recursive: true });

    expect(result).toMatchObject({ status: 'failed', failureReason: 'destination_blocked' });
    expect(connections).toBe(0);
  });

  it('that replaces the URL does not bypass the guard', async () => {
    intercept((config) => (config.url = inside.url));

    expect(await bench.publisher.send(urlInside(), 'order.created', [1])).toMatchObject({
      status: 'failed',
      failureReason: 'destination_blocked',
    });
    expect(inside.connections).toBe(0);
  });

  it('that follows redirects is checked at each of them, with a warning', async () => {
    await bench.stop();
    bench = await PublisherBench.start({ allowedAddresses: ['127.0.0.1'] });
    outside.script = () => ({ status: 307, headers: { Location: 'http://127.0.0.3:1/' } });
    intercept((config) => (config.maxRedirects = 5));

    expect(await bench.publisher.send(outside.url, 'order.created', [1])).toMatchObject({
      status: 'failed',
      failureReason: 'destination_blocked',
    });
    expect(bench.logs('warn')).toEqual(
      expect.arrayContaining([expect.stringContaining('replaces maxRedirects')]),
    );
  });

  it('that only adds a header or measures time causes no warning', async () => {
    await bench.stop();
    bench = await PublisherBench.start({ allowedAddresses: ['127.0.0.1'] });
    intercept((config) => void config.headers.set('X-Trace', 'abc'));

    expect(await bench.publisher.send(inside.url, 'order.created', [1])).toMatchObject({
      status: 'delivered',
    });
    expect(inside.requests[0]!.headers).toContainEqual(['X-Trace', 'abc']);
    expect(bench.logs('warn')).toEqual([]);
  });
});

describe('an HttpService with an adapter of the application', () => {
  it('is reported at start-up and used', async () => {
    const left: (string | undefined)[] = [];
    const httpModule = HttpModule.register({
      adapter: async (config) => {
        left.push(config.url);
        return { status: 204, statusText: 'x', headers: {}, data: '', config };
      },
    });
    const { app, logger } = await startApp(new ExpressAdapter(), {
      options: {
        publisher: { issuer: 'https://billing.example', secret: SECRET },
        httpModule,
      },
    });
    const result = await app
      .get(WebhookPublisher)
      .send('https://partner.example/hooks', 'order.created', {});
    await app.close();

    expect(result).toMatchObject({ status: 'delivered' });
    expect(left).toEqual(['https://partner.example/hooks']);
    expect(logger.at('warn')).toEqual([expect.stringContaining('its own axios adapter')]);
  });
});
