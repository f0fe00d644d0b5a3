import dns from 'node:dns';
import { once } from 'node:events';
import { createServer as createHttp2Server } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { createTokenVerifier, digest } from 'nestjs-webhook-token/token';
import { PublisherBench, secret } from './publisher-bench.js';
import { WireReceiver, type WireAnswer, type WireRequest } from './wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  bench = await PublisherBench.start();
});

afterEach(async () => {
  restorePreset();
  await bench.stop();
  await receiver.stop();
});

describe('on the wire, an event with a small object', () => {
  it('is a HEAD with the data in its token, length 0 and no body', async () => {
    await bench.publisher.send(receiver.url, 'order.created', { id: 7, note: 'ünï' });

    const [request] = receiver.requests as [WireRequest];
    expect(request.method).toBe('HEAD');
    expect(request.path).toBe('/hooks');
    expect(byName(request.headers)).toEqual([
      ['Accept', '*/*'],
      ['Accept-Encoding', 'identity'],
      ['Authorization', `Bearer ${request.token}`],
      ['Connection', 'keep-alive'],
      ['Content-Length', '0'],
      ['Content-Type', 'application/json'],
      ['Host', `127.0.0.1:${receiver.port}`],
      ['User-Agent', 'nestjs-webhook-token'],
    ]);
    expect(request.claims.webhook).toEqual({
      event: 'order.created',
      data: { id: 7, note: 'ünï' },
    });
  });

  it('is a HEAD without data if the event has none', async () => {
    await bench.publisher.send(receiver.url, 'ping.sent');

    expect(receiver.requests[0]!.method).toBe('HEAD');
    expect(receiver.requests[0]!.claims.webhook).toEqual({ event: 'ping.sent' });
  });

  it('keeps the connection usable for the next request', async () => {
    for (let count = 0; count < 3; count++) {
      await bench.publisher.send(receiver.url, 'order.created', { count });
    }

    expect(receiver.requests.map(({ claims }) => claims.webhook.data.count)).toEqual([0, 1, 2]);
    expect(receiver.connections).toBe(1);
  });

  it('has a valid token', async () => {
    await bench.publisher.send(receiver.url, 'order.created', { id: 7 }, { audience: 'crm' });

    const verifier = createTokenVerifier({
      issuers: [{ issuer: 'https://billing.example', secret }],
      audience: 'crm',
      now: () => bench.clock.now(),
    });
    const { claims } = await verifier.verify(receiver.requests[0]!.token);
    expect(claims).toMatchObject({ iss: 'https://billing.example', aud: 'crm' });
    expect(claims.exp - claims.iat).toBe(300);
    expect(claims.nbf).toBe(claims.iat);
    expect(claims.txn).not.toBe(claims.jti);
  });
});

describe('on the wire, an event that does not fit', () => {
  it.each<[string, unknown, string | undefined, Buffer, string]>([
    ['a large object', large(6_100), undefined, json(large(6_100)), 'application/json'],
    ['an array', [1, 2], undefined, Buffer.from('[1,2]'), 'application/json'],
    ['a string', ' keep\n', undefined, Buffer.from('" keep\\n"'), 'application/json'],
    ['null', null, undefined, Buffer.from('null'), 'application/json'],
    ['a number', 0, undefined, Buffer.from('0'), 'application/json'],
    ['false', false, undefined, Buffer.from('false'), 'application/json'],
    ['data that is nested too deeply', deep(65), undefined, json(deep(65)), 'application/json'],
    [
      'data that pollutes prototypes',
      JSON.parse('{"__proto__":{"a":1}}'),
      undefined,
      Buffer.from('{"__proto__":{"a":1}}'),
      'application/json',
    ],
    ['bytes', Buffer.from('a;b\r\n'), 'text/csv', Buffer.from('a;b\r\n'), 'text/csv'],
    ['zero bytes', Buffer.alloc(0), 'text/csv', Buffer.alloc(0), 'text/csv'],
    [
      'a view of a larger buffer',
      new Uint8Array([1, 2, 3, 4]).subarray(1, 3),
      'a/b',
      Buffer.from([2, 3]),
      'a/b',
    ],
    [
      'invalid UTF-8',
      Buffer.from([0xff, 0xfe]),
      'text/plain',
      Buffer.from([0xff, 0xfe]),
      'text/plain',
    ],
    [
      'a JSON dialect',
      { a: 1 },
      'application/hal+json',
      Buffer.from('{"a":1}'),
      'application/hal+json',
    ],
  ])('is a POST of exactly the bytes of %s', async (_, data, contentType, body, type) => {
    await bench.publisher.send(receiver.url, 'order.created', data, { contentType });

    const [request] = receiver.requests as [WireRequest];
    expect(request.method).toBe('POST');
    expect(request.body.equals(body)).toBe(true);
    expect(byName(request.headers)).toEqual([
      ['Accept', '*/*'],
      ['Accept-Encoding', 'identity'],
      ['Authorization', `Bearer ${request.token}`],
      ['Connection', 'keep-alive'],
      ['Content-Length', String(body.length)],
      ['Content-Type', type],
      ['Host', `127.0.0.1:${receiver.port}`],
      ['User-Agent', 'nestjs-webhook-token'],
    ]);
    expect(request.claims.webhook).toEqual({
      event: 'order.created',
      hash: digest('sha256', body),
    });
  });

  it('sends the bytes as they were when the event was published', async () => {
    const bytes = Buffer.from('before');
    const sent = bench.publisher.send(receiver.url, 'file.stored', bytes, { contentType: 'a/b' });
    bytes.fill('x');
    await sent;

    expect(receiver.requests[0]!.body.toString()).toBe('before');
  });

  it('never sends a request head above the limit', async () => {
    for (let size = 4_600; size <= 5_200; size += 50) {
      await bench.publisher.send(receiver.url, 'order.created', large(size));
    }

    const heads = receiver.requests.filter(({ method }) => method === 'HEAD');
    expect(heads.length).toBeGreaterThan(3);
    expect(heads.length).toBeLessThan(receiver.requests.length);
    const longest = Math.max(...heads.map(({ headBytes }) => headBytes));
    expect(longest).toBeLessThanOrEqual(7_168);
    expect(longest).toBeGreaterThan(7_168 - 4 * 50);
  });

  it("counts the headers of the endpoint and of the application's HttpService", async () => {
    bench.http.axiosRef.defaults.headers.common['X-Padding'] = 'p'.repeat(3_000);
    await bench.publisher.send(receiver.url, 'order.created', large(4_000));

    expect(receiver.requests[0]!.method).toBe('POST');
    delete bench.http.axiosRef.defaults.headers.common['X-Padding'];
  });
});

describe('the option method', () => {
  it('sends a POST even if the data would fit into a HEAD', async () => {
    await bench.publisher.send(receiver.url, 'order.created', { id: 7 }, { method: 'POST' });

    expect(receiver.requests[0]).toMatchObject({ method: 'POST', body: Buffer.from('{"id":7}') });
  });

  it('sends a POST without a body, of length 0', async () => {
    await bench.publisher.send(receiver.url, 'ping.sent', undefined, { method: 'POST' });

    const [request] = receiver.requests as [WireRequest];
    expect(request.headers).toContainEqual(['Content-Length', '0']);
    expect(request.headers.some(([name]) => /transfer-encoding/i.test(name))).toBe(false);
    expect(request.claims.webhook).toEqual({ event: 'ping.sent' });
  });

  it.each<[string, unknown]>([
    ['an array', [1]],
    ['data that looks like a reference to a body', { hash: '9f86d081', size: 3 }],
    ['an object that is too large', large(6_001)],
    ['an object that makes the head too large', large(5_500)],
  ])('refuses HEAD for %s, before anything is recorded', async (_, data) => {
    const sent = bench.publisher.send(receiver.url, 'order.created', data, { method: 'HEAD' });

    await expect(sent).rejects.toMatchObject({ code: 'invalid_option' });
    expect(receiver.requests).toEqual([]);
  });

  it('never follows an explicit HEAD with a POST', async () => {
    receiver.script = () => ({ status: 405 });
    const result = await bench.publisher.send(
      receiver.url,
      'order.created',
      {},
      { method: 'HEAD' },
    );

    expect(result).toMatchObject({ status: 'scheduled', statusCode: 405 });
    expect(receiver.requests).toHaveLength(1);
  });
});

describe('a HEAD', () => {
  it.each<[string, WireAnswer | 'reset' | string]>([
    ...[200, 201, 206, 301, 302, 307, 308, 404, 405, 408, 411, 413, 414, 431, 494, 501].map(
      (status): [string, WireAnswer] => [String(status), { status }],
    ),
    ['400 without a challenge', { status: 400 }],
    ['401 without a challenge', { status: 401 }],
    [
      '401 with another challenge',
      { status: 401, headers: { 'WWW-Authenticate': 'Basic realm="x"' } },
    ],
    ['a closed connection', 'reset'],
    ['an answer with a body', 'HTTP/1.1 431 x\r\nContent-Length: 5\r\n\r\nerror'],
    ['an answer that is not HTTP', 'SSH-2.0-x\r\n\r\n'],
  ])('is repeated as POST after %s', async (_, answer) => {
    receiver.script = ({ method }) => (method === 'HEAD' ? answer : { status: 200 });
    const result = await bench.publisher.send(receiver.url, 'order.created', { id: 7 });

    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD', 'POST']);
    const [head, post] = receiver.requests as [WireRequest, WireRequest];
    expect(post.claims.jti).not.toBe(head.claims.jti);
    expect(post.claims.txn).toBe(head.claims.txn);
    expect(post.body.toString()).toBe('{"id":7}');
    expect(result).toMatchObject({ status: 'delivered', attempts: 1, statusCode: 200 });
  });

  it.each<[string, WireAnswer]>([
    ...[202, 204, 402, 403, 409, 410, 422, 429, 500, 502, 503].map(
      (status): [string, WireAnswer] => [String(status), { status }],
    ),
    ['400 with a challenge', { status: 400, headers: { 'WWW-Authenticate': 'Bearer error="x"' } }],
    ['401 with a challenge', { status: 401, headers: { 'www-authenticate': 'Basic, bearer' } }],
  ])('is not repeated as POST after %s', async (_, answer) => {
    receiver.script = () => answer;
    await bench.publisher.send(receiver.url, 'order.created', { id: 7 });

    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD']);
  });

  it('is no longer sent once a POST was acknowledged', async () => {
    receiver.script = ({ method }) => ({ status: method === 'HEAD' ? 404 : 204 });
    await bench.publisher.send(receiver.url, 'order.created', { id: 1 });
    await bench.publisher.send(receiver.url, 'order.created', { id: 2 });

    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD', 'POST', 'POST']);
  });

  it('is sent again if the POST failed too', async () => {
    receiver.script = () => ({ status: 404 });
    await bench.publisher.send(receiver.url, 'order.created', { id: 1 });
    await bench.publisher.send(receiver.url, 'order.created', { id: 2 });

    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD', 'POST', 'HEAD', 'POST']);
  });

  it('has one timeout for both requests of an attempt', async () => {
    receiver.script = ({ method }) => (method === 'HEAD' ? { status: 404 } : 'hang');
    const sent = bench.publisher.send(receiver.url, 'order.created', { id: 1 });
    await receiver.received(2);
    await bench.clock.advance(15_000);

    expect(await sent).toMatchObject({
      status: 'scheduled',
      failureReason: 'timeout',
      durationMs: 15_000,
    });
  });
});

describe("an application's HttpService", () => {
  it('replaces neither the token nor the destination', async () => {
    preset({
      auth: { username: 'me', password: 'hunter2' },
      baseURL: 'http://127.0.0.1:1/elsewhere',
      allowAbsoluteUrls: false,
      params: { api_key: 'of another service' },
      responseType: 'json',
      maxBodyLength: 1,
      transformRequest: [() => 'rewritten'],
      validateStatus: () => false,
    });
    const result = await bench.publisher.send(receiver.url, 'order.created', [1, 2]);

    expect(result.status).toBe('delivered');
    expect(receiver.requests[0]).toMatchObject({ path: '/hooks', body: Buffer.from('[1,2]') });
    expect(receiver.requests[0]!.claims.webhook.event).toBe('order.created');
  });

  describe.each<[string, (headers: object) => object]>([
    ['of every request', (headers) => ({ ...headers })],
    ['common to all methods', (common) => ({ common })],
    ['of a method', (headers) => ({ head: headers, post: headers })],
  ])('with default headers %s', (_, defaults) => {
    it.each<[string, unknown]>([
      ['HEAD', { id: 7 }],
      ['POST', [1, 2]],
    ])('adds to a %s none that frames or authenticates it', async (method, data) => {
      preset({ headers: defaults({ ...FRAMING, 'X-Tenant': 'acme' }) });
      const result = await bench.publisher.send(receiver.url, 'order.created', data);

      expect(result).toMatchObject({ status: 'delivered', attempts: 1 });
      const [request] = receiver.requests as [WireRequest];
      expect(request.method).toBe(method);
      expect(byName(request.headers)).toEqual([
        ['Accept', '*/*'],
        ['Accept-Encoding', 'identity'],
        ['Authorization', `Bearer ${request.token}`],
        ['Connection', 'keep-alive'],
        ['Content-Length', String(request.body.length)],
        ['Content-Type', 'application/json'],
        ['Host', `127.0.0.1:${receiver.port}`],
        ['User-Agent', 'nestjs-webhook-token'],
        ['X-Tenant', 'acme'],
      ]);
    });

    it('authenticates no request that has another signature than a token', async () => {
      await bench.stop();
      const standardWebhooks = { secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}` };
      bench = await PublisherBench.start({ profile: 'standard-webhooks', standardWebhooks });
      preset({ headers: defaults(FRAMING) });
      const result = await bench.publisher.send(receiver.url, 'order.created', {}, { id: 'e1' });

      expect(result).toMatchObject({ status: 'delivered', attempts: 1 });
      const headers = new Headers(receiver.requests[0]!.headers.map((header) => [...header]));
      expect(headers.get('webhook-id')).toBe('e1');
      expect(headers.has('authorization')).toBe(false);
      expect([...headers.values()]).not.toContain('evil');
    });
  });

  it('lets an interceptor set a header that a default may not', async () => {
    preset({ headers: { Connection: 'upgrade' } });
    const { request } = bench.http.axiosRef.interceptors;
    const close = request.use((config) => {
      config.headers.set('Connection', 'close');
      return config;
    });
    await bench.publisher.send(receiver.url, 'order.created', {});
    request.eject(close);

    expect(receiver.requests[0]!.headers).toContainEqual(['Connection', 'close']);
  });

  it('opens no HTTP/2 session that bypasses the egress guard', async () => {
    let sessions = 0;
    const server = createHttp2Server()
      .on('session', () => sessions++)
      .on('stream', (stream) => {
        stream.respond({ ':status': 204 });
        stream.end();
      })
      .listen(0, '127.0.0.1');
    await once(server, 'listening');
    const lookup = jest.spyOn(dns, 'lookup').mockImplementation(((
      _host: string,
      options: { all?: boolean },
      done: (...args: unknown[]) => void,
    ) => {
      if (options.all === true) done(null, [{ address: '127.0.0.1', family: 4 }]);
      else done(null, '127.0.0.1', 4);
    }) as never);
    try {
      await bench.stop();
      bench = await PublisherBench.start({ allowedAddresses: [] });
      preset({ httpVersion: 2, http2Options: { sessionTimeout: 1 } });
      const url = `http://inside.example.com:${(server.address() as AddressInfo).port}/`;
      const result = await bench.publisher.send(url, 'order.created', {});

      expect(result).toMatchObject({ status: 'failed', failureReason: 'destination_blocked' });
      expect(sessions).toBe(0);
    } finally {
      lookup.mockRestore();
      server.close();
    }
  });

  it('parses answers strictly', async () => {
    preset({ insecureHTTPParser: true });
    receiver.script = () => 'HTTP/1.1 204 x\r\nX-Odd: a\u0001b\r\n\r\n';

    expect(await bench.publisher.send(receiver.url, 'order.created', [1])).toMatchObject({
      status: 'scheduled',
      failureReason: 'malformed_response',
    });
  });

  it('accepts an empty 204', async () => {
    preset({ transformResponse: [(data: string) => JSON.parse(data)] });

    expect(await bench.publisher.send(receiver.url, 'order.created', {})).toMatchObject({
      status: 'delivered',
      statusCode: 204,
    });
  });

  it('counts the answers that an interceptor hides', async () => {
    const { response } = bench.http.axiosRef.interceptors;
    const unwrap = response.use(({ data }) => data);
    const send = () => bench.publisher.send(receiver.url, 'order.created', {});
    receiver.script = (_, index) => ({ status: index === 0 ? 204 : 503 });
    const results = [await send(), await send()];
    response.eject(unwrap);

    expect(results).toMatchObject([
      { status: 'delivered', statusCode: 204 },
      { status: 'scheduled', failureReason: 'http_503' },
    ]);
    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD', 'HEAD']);
    expect(bench.logs('warn')).toEqual([]);
  });

  it('ignores a proxy from the environment', async () => {
    const proxy = await WireReceiver.start();
    process.env['http_proxy'] = `http://127.0.0.1:${proxy.port}`;
    try {
      await bench.publisher.send(receiver.url, 'order.created', {});
    } finally {
      delete process.env['http_proxy'];
      await proxy.stop();
    }

    expect(receiver.requests).toHaveLength(1);
    expect(proxy.requests).toEqual([]);
  });

  it('follows no redirect', async () => {
    const other = await WireReceiver.start();
    receiver.script = () => ({ status: 307, headers: { Location: other.url } });
    const result = await bench.publisher.send(receiver.url, 'order.created', [1]);
    await other.stop();

    expect(result).toMatchObject({
      status: 'scheduled',
      statusCode: 307,
      failureReason: 'http_307',
    });
    expect(other.requests).toEqual([]);
  });
});

describe('sign', () => {
  it('returns a HEAD for the caller to send', async () => {
    const request = await bench.publisher.sign(
      receiver.url,
      'order.created',
      { id: 7 },
      { id: 'e1' },
    );

    expect(request).toEqual({
      method: 'HEAD',
      url: receiver.url,
      headers: expect.objectContaining({
        Authorization: `Bearer ${request.token}`,
        'Content-Length': '0',
      }),
      token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/),
      id: 'e1',
      receipt: expect.objectContaining({ id: 'e1', method: 'HEAD' }),
    });
    expect(receiver.requests).toEqual([]);
  });

  it('returns a POST with the bytes that its token authenticates', async () => {
    const { url, ...request } = await bench.publisher.sign(receiver.url, 'order.created', [1, 2]);
    await fetch(url, request);

    expect(receiver.requests[0]!.claims.webhook.hash).toBe(digest('sha256', Buffer.from('[1,2]')));
    expect(receiver.requests[0]!.body.toString()).toBe('[1,2]');
  });

  it('refuses HEAD if it cannot carry the data', async () => {
    await expect(
      bench.publisher.sign(receiver.url, 'order.created', [1], { method: 'HEAD' }),
    ).rejects.toMatchObject({ code: 'invalid_option' });
  });
});

describe('an explicit HEAD', () => {
  it('is refused before it is recorded, for exactly the data that does not fit into its head', async () => {
    await bench.stop();
    // As many bytes as the names in a token can take.
    const name = '€'.repeat(255);
    bench = await PublisherBench.start({
      issuer: name,
      secret: undefined,
      key: { key: secret, kid: '€'.repeat(256) },
      endpoints: [
        {
          id: 'crm',
          url: receiver.url,
          method: 'HEAD',
          subject: name,
          headers: { 'X-Long': 'x'.repeat(500) },
        },
      ],
    });
    const codeOf = async (call: Promise<unknown>): Promise<unknown> =>
      call.then(
        () => 'sent',
        (error: { code?: string }) => error.code,
      );
    const codes = new Set<unknown>();
    for (let size = 0; size < 3_000; size += 100) {
      const data = { text: 'x'.repeat(size) };
      const signed = await codeOf(bench.publisher.sign('crm', 'order.created', data));
      const sent = await codeOf(bench.publisher.send('crm', 'order.created', data));
      expect([size, sent]).toEqual([size, signed]);
      codes.add(sent);
    }

    expect([...codes]).toEqual(['sent', 'invalid_option']);
    expect(new Set(receiver.requests.map(({ method }) => method))).toEqual(new Set(['HEAD']));
  });
});

/** Default headers, each of which would break, redirect or authenticate a request. */
const FRAMING = {
  Authorization: 'evil',
  Connection: 'evil',
  'Content-Encoding': 'evil',
  'Content-Length': '3',
  'Content-Type': 'text/evil',
  Expect: '100-continue',
  HOST: 'evil',
  'Keep-Alive': 'evil',
  'proxy-authorization': 'evil',
  'Proxy-Connection': 'evil',
  TE: 'evil',
  Trailer: 'evil',
  'Transfer-Encoding': 'chunked',
  Upgrade: 'evil',
  'Webhook-Id': 'evil',
  'webhook-signature': 'evil',
  'Webhook-Timestamp': 'evil',
};

let restorePreset = (): void => {};

/** Sets what every request of the application's HttpService has by default, until the end of the test. */
function preset(values: object): void {
  const { defaults } = bench.http.axiosRef;
  const before = { ...defaults };
  Object.assign(defaults, values);
  restorePreset = () => {
    for (const key of Object.keys(defaults)) delete (defaults as any)[key];
    Object.assign(defaults, before);
  };
}

/** An object whose JSON has this many bytes. */
function large(bytes: number): object {
  return { text: 'x'.repeat(bytes - '{"text":""}'.length) };
}

function deep(levels: number): object {
  return levels === 1 ? {} : { inner: deep(levels - 1) };
}

function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}

function byName(headers: WireRequest['headers']): WireRequest['headers'] {
  return headers.toSorted(([a], [b]) => a.localeCompare(b));
}
