import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { TlsOptions } from 'node:tls';
import { HttpModule, HttpService } from '@nestjs/axios';
import { Test } from '@nestjs/testing';
import type { DynamicModule } from '@nestjs/common';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Agent, buildConnector } from 'undici';
import { blockedDestination } from '../../lib/egress/blocked-destination.js';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';
import { guardConnector } from '../../lib/egress/guarded-connector.js';
import type { FailureReason } from '../../lib/queue/failure-reason.js';
import { lookupOf } from '../egress/scripted-lookup.js';
import { HostileReceiver, writeForever, type Behaviour } from './hostile-receiver.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const DEADLINE = 15_000;
const OK = 'HTTP/1.1 200 OK\r\n';
const NO_CONTENT = 'HTTP/1.1 204 x\r\n\r\n';

let bench: PublisherBench;
let good: WireReceiver;
let hostile: HostileReceiver | undefined;
let httpModule: DynamicModule | undefined;

beforeEach(async () => {
  good = await WireReceiver.start();
  bench = await PublisherBench.start({ transport: 'auto' }, undefined, undefined, httpModule);
});
afterEach(async () => {
  await bench.stop();
  await Promise.all([good.stop(), hostile?.stop()]);
  hostile = undefined;
});

/** A string is not sent inline, so it is a POST. */
const send = async (url: string) => bench.publisher.send(url, 'order.created', 'a text');

/** undici writes its own header names in lower case, axios in the case of RFC 9110. */
const leftByUndici = ({ headers }: { headers: readonly (readonly string[])[] }): boolean =>
  headers.some(([name]) => name === 'host');

function answer(text: string): Behaviour {
  return (socket) => void socket.write(text, 'latin1');
}

describe.each([
  ["the module's own", undefined],
  ["an application's", HttpModule.register({})],
])('the undici transport with %s HttpService', (_, given) => {
  beforeAll(() => {
    httpModule = given;
  });
  afterAll(() => {
    httpModule = undefined;
  });

  it('sends a POST with the same bytes and headers as axios', async () => {
    const bytes = Buffer.from([0, 1, 255, 254, 13, 10]);
    const contentType = 'application/octet-stream';
    await bench.publisher.send(good.url, 'report.ready', bytes, { contentType });

    const [request] = good.requests;
    expect(leftByUndici(request!)).toBe(true);
    expect(request!.body).toEqual(bytes);
    const headers = Object.fromEntries(
      request!.headers.map(([name, value]) => [name.toLowerCase(), value]),
    );
    expect(headers).toMatchObject({
      accept: '*/*',
      'accept-encoding': 'identity',
      'content-length': '6',
      'content-type': contentType,
      'user-agent': expect.stringMatching(/^nestjs-webhook-token/),
    });
  });

  it('shares a connection among POSTs, and closes it at shutdown', async () => {
    hostile = await HostileReceiver.start(answer(NO_CONTENT));
    for (let count = 0; count < 10; count++) {
      expect(await send(hostile.url)).toMatchObject({ status: 'delivered' });
    }

    // The second connection opens while the first is being closed.
    expect(hostile.requests).toBe(10);
    expect(hostile.connections).toBeLessThanOrEqual(2);
    await bench.publisher.beforeApplicationShutdown();
    await hostile.released();
  });

  it('leaves a HEAD to axios, since its connection could not be reused', async () => {
    await bench.publisher.send(good.url, 'order.created', { small: true });

    expect(good.requests[0]!.method).toBe('HEAD');
    expect(leftByUndici(good.requests[0]!)).toBe(false);
  });

  it.each<[string, Behaviour, FailureReason]>([
    ['a head of 60 kB', answer(`${OK}X: ${'x'.repeat(60_000)}\r\n\r\n`), 'response_too_large'],
    [
      'an endless body',
      (socket) => writeForever(socket, `${OK}\r\n${'x'.repeat(60_000)}`),
      'response_too_large',
    ],
    ['a reset', (socket) => void socket.resetAndDestroy(), 'connection_reset'],
    ['a FIN before an answer', (socket) => void socket.end(), 'connection_reset'],
    [
      'a FIN within the body',
      (socket) => void socket.end(`${OK}Content-Length: 9\r\n\r\nx`),
      'connection_reset',
    ],
    ['an SSH greeting', answer('SSH-2.0-OpenSSH\r\n'), 'malformed_response'],
    ['an invalid length', answer(`${OK}Content-Length: -5\r\n\r\n`), 'malformed_response'],
    [
      'a length and chunks',
      answer(`${OK}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`),
      'malformed_response',
    ],
    [
      'a redirect',
      answer('HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n'),
      'http_307',
    ],
    ['a refusal', answer('HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n'), 'http_401'],
  ])(
    'reports %s, closes the connection, and serves the next receiver',
    async (_, behave, failureReason) => {
      hostile = await HostileReceiver.start(behave);

      expect(await send(hostile.url)).toMatchObject({ status: 'scheduled', failureReason });
      expect(await send(good.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
      expect(leftByUndici(good.requests[0]!)).toBe(true);
      await bench.publisher.beforeApplicationShutdown();
      await hostile.released();
    },
  );

  it.each<[string, Behaviour]>([
    ['never arrives', () => {}],
    ['stops within its head', answer(OK)],
    ['stops within its body', answer(`${OK}Content-Length: 100\r\n\r\nabc`)],
  ])('cuts off an answer that %s at the deadline', async (_, behave) => {
    hostile = await HostileReceiver.start(behave);
    const sent = send(hostile.url);
    await hostile.received(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'timeout' });
    await hostile.released();
  });

  it('reports a refused connection', async () => {
    expect(await send('http://127.0.0.1:2/')).toMatchObject({
      failureReason: 'connection_refused',
    });
  });

  it('leaves the next attempt to axios if a server sends 100 Continue unasked', async () => {
    hostile = await HostileReceiver.start(answer(`HTTP/1.1 100 Continue\r\n\r\n${NO_CONTENT}`));

    expect(await send(hostile.url)).toMatchObject({ failureReason: 'connection_reset' });
    expect(await send(hostile.url)).toMatchObject({ status: 'delivered' });
  });

  it('leaves requests with other settings of an interceptor to axios', async () => {
    await bench.stop();
    const module = await Test.createTestingModule({ imports: [HttpModule.register({})] }).compile();
    const http = module.get(HttpService);
    http.axiosRef.interceptors.request.use((config) => {
      config.params = { trace: 1 };
      return config;
    });
    bench = await PublisherBench.start({ transport: 'auto' }, http);

    expect(await send(good.url)).toMatchObject({ status: 'delivered' });
    expect(leftByUndici(good.requests[0]!)).toBe(false);
    expect(good.requests[0]!.path).toContain('trace=1');
  });

  it('sends a header that an interceptor adds', async () => {
    await bench.stop();
    const module = await Test.createTestingModule({ imports: [HttpModule.register({})] }).compile();
    const http = module.get(HttpService);
    http.axiosRef.interceptors.request.use((config) => {
      config.headers.set('X-Trace', 'abc');
      return config;
    });
    bench = await PublisherBench.start({ transport: 'auto' }, http);
    await send(good.url);

    expect(leftByUndici(good.requests[0]!)).toBe(true);
    expect(good.requests[0]!.headers).toContainEqual(['X-Trace', 'abc']);
  });
});

function pem(name: string): Buffer {
  return readFileSync(new URL(`../egress/certificates/${name}.pem`, import.meta.url));
}

describe('a receiver with TLS, over undici', () => {
  const ca = pem('hooks.test.cert').toString();

  async function start(more: TlsOptions, trusted: boolean): Promise<HostileReceiver> {
    await bench.stop();
    bench = await PublisherBench.start({ transport: 'auto', ...(trusted && { tls: { ca } }) });
    hostile = await HostileReceiver.start(answer(NO_CONTENT), {
      tls: { cert: pem('hooks.test.cert'), key: pem('hooks.test.key'), ...more },
    });
    return hostile;
  }

  it('gets requests if its authority is trusted', async () => {
    const { url } = await start({}, true);

    expect(await send(url)).toMatchObject({ status: 'delivered' });
  });

  it('is disconnected at the deadline if it never answers the handshake', async () => {
    hostile = await HostileReceiver.start(() => {});
    const sent = send(hostile.url.replace('http:', 'https:'));
    await hostile.connected(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'timeout' });
    await hostile.released();
  });

  it('does not keep a process alive if it never answers the handshake', async () => {
    hostile = await HostileReceiver.start(() => {});
    const sent = send(hostile.url.replace('http:', 'https:')).catch((error: unknown) => error);
    await hostile.connected(1);
    const stopped = bench.publisher.beforeApplicationShutdown();
    await bench.clock.advance(10_000);
    await stopped;

    expect(await sent).toMatchObject({ code: 'shutting_down' });
    await hostile.released();
  });

  it.each<[string, TlsOptions, boolean]>([
    ['with a self-signed certificate', {}, false],
    [
      'with TLS 1.1',
      { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' },
      true,
    ],
  ])('gets no request %s', async (_, more, trusted) => {
    const { url } = await start(more, trusted);

    expect(await send(url)).toMatchObject({ status: 'scheduled', failureReason: 'tls' });
    expect(hostile!.requests).toBe(0);
  });
});

describe('the connection guard of undici', () => {
  const policy = new EgressPolicy({ allowHttp: true });

  /** The outcome of a request to a name or an address, with a server on loopback that must not be reached. */
  async function request(host: string, addresses: readonly string[]): Promise<unknown> {
    const canary = createServer((_, response) => response.end());
    let heard = 0;
    canary.on('connection', () => heard++);
    canary.listen(0, '127.0.0.1');
    await once(canary, 'listening');
    const { port } = canary.address() as AddressInfo;
    const lookup = lookupOf(addresses);
    const agent = new Agent({
      connect: guardConnector(policy, (settings) => buildConnector({ ...settings }), { lookup }),
    });
    try {
      return await agent
        .request({ origin: `http://${host}:${port}`, path: '/', method: 'POST', body: 'x' })
        .then(
          ({ statusCode }) => statusCode,
          (error: unknown) => error,
        );
    } finally {
      await agent.destroy();
      canary.close();
      expect(heard).toBe(0);
    }
  }

  it.each([
    ['127.0.0.1', []],
    ['[::1]', []],
    ['[::ffff:127.0.0.1]', []],
    ['hooks.example', ['127.0.0.1']],
    ['hooks.example', ['::1']],
    ['hooks.example', ['93.184.216.34', '127.0.0.1']],
    ['hooks.example', ['169.254.169.254']],
  ])('refuses %s that resolves to %j', async (host, addresses) => {
    expect(blockedDestination(await request(host, addresses))).toBeDefined();
  });
});
