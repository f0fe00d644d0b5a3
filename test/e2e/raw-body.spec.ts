import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { AddressInfo } from 'node:net';
import { PassThrough, type Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import {
  Body,
  Controller,
  Module,
  Post,
  type INestApplication,
  type NestApplicationOptions,
  type Type,
} from '@nestjs/common';
import { NestFactory, type AbstractHttpAdapter } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { WebhookContext, WebhookRoute, type WebhookEvent } from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { outcome, requestHead } from '../fixtures/hostile-target.js';
import { RawConnection } from '../fixtures/raw-client.js';
import { sendOver2 } from '../fixtures/http2-client.js';
import {
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

const received: WebhookEvent[] = [];

@Controller('endpoint')
class Endpoint {
  @WebhookRoute()
  receive(@WebhookContext() event: WebhookEvent): void {
    received.push(event);
  }
}

@Controller('neighbour')
class Neighbour {
  @Post()
  echo(@Body() body: unknown): unknown {
    return { type: Buffer.isBuffer(body) ? 'bytes' : typeof body, body: String(body).slice(0, 80) };
  }
}

/** Ways to configure body parsing in an application. */
interface Host {
  readonly nest?: NestApplicationOptions;
  readonly configure?: (app: INestApplication) => void;
}

type WithParsers = INestApplication & { useBodyParser(type: string, options?: object): void };
type ParserDone = (error: Error | null, body?: unknown) => void;
interface FastifyParsers {
  removeAllContentTypeParsers(): void;
  addContentTypeParser(
    type: string | string[] | RegExp,
    options: { parseAs: 'string' },
    parser: (request: unknown, body: string, done: ParserDone) => void,
  ): void;
}

interface FastifyHooks {
  addHook(
    name: 'preParsing',
    hook: (
      request: unknown,
      reply: unknown,
      payload: Readable,
      done: (error: null, payload: Readable) => void,
    ) => void,
  ): void;
}

const parsersOf = (app: INestApplication): FastifyParsers =>
  app.getHttpAdapter().getInstance() as FastifyParsers;

const anyHost: [string, Host][] = [
  ['with defaults', {}],
  ['with rawBody', { nest: { rawBody: true } }],
  ['without a body parser', { nest: { bodyParser: false } }],
];

const hosts: Record<string, [string, Host][]> = {
  Express: [
    ...anyHost,
    ...['json', 'raw', 'text'].map((parser): [string, Host] => [
      `with a ${parser} parser for every type`,
      {
        configure: (app) =>
          (app as WithParsers).useBodyParser(parser, { type: () => true, limit: '50mb' }),
      },
    ]),
  ],
  Fastify: [
    ...anyHost,
    [
      'with a parser for every type',
      { configure: (app) => (app as WithParsers).useBodyParser('*') },
    ],
    [
      'with parsers of strings',
      {
        configure: (app) =>
          parsersOf(app).addContentTypeParser(
            ['text/plain', 'application/xml', 'application/octet-stream'],
            { parseAs: 'string' },
            (_request, body, done) => done(null, body),
          ),
      },
    ],
    [
      'with a hook that pipes bodies through a stream',
      {
        configure: (app) =>
          (app.getHttpAdapter().getInstance() as FastifyHooks).addHook(
            'preParsing',
            (_request, _reply, payload, done) => done(null, payload.pipe(new PassThrough())),
          ),
      },
    ],
    [
      'without any parser',
      {
        nest: { bodyParser: false },
        configure: (app) => parsersOf(app).removeAllContentTypeParsers(),
      },
    ],
  ],
};

type Outcome = [status: number, code: string | undefined];
const GOOD: Outcome = [204, undefined];
const json = 'application/json';
const long = (length: number): string => JSON.stringify({ text: 'x'.repeat(length) });

/** A body as sent, and the expected data. */
interface Wire {
  readonly headers: readonly string[];
  readonly bytes: Buffer;
  /** Default: the event is handled. */
  readonly expected?: Outcome;
  /** Default: the bytes of the body. */
  readonly data?: unknown;
}

const of = (type: string, text: string | Buffer, more: Partial<Wire> = {}): Wire => ({
  headers: [`Content-Type: ${type}`],
  bytes: Buffer.from(text as string),
  ...more,
});

const bodies: [string, Wire][] = [
  ['JSON', of(json, '{ "a" : 1 }', { data: { a: 1 } })],
  ['+json', of('application/x+json', '[1]', { data: [1] })],
  ['+json of another tree', of('model/gltf+json', '[1]', { data: [1] })],
  [
    'JSON in gzip',
    {
      headers: [`Content-Type: ${json}`, 'Content-Encoding: gzip'],
      bytes: gzipSync('{}'),
      expected: [415, 'unsupported_encoding'],
    },
  ],
  ['invalid JSON', of(json, '{"a":', { expected: [400, 'invalid_payload'] })],
  [
    'JSON in UTF-16',
    of(`${json}; charset=utf-16le`, Buffer.from('{"a":1}', 'utf16le'), { data: { a: 1 } }),
  ],
  ['200 kB of JSON', of(json, long(2e5), { data: JSON.parse(long(2e5)) })],
  ['2 MB of JSON', of(json, long(2e6), { data: JSON.parse(long(2e6)) })],
  ['text', of('text/plain; charset=utf-8', 'grüße')],
  ['XML', of('application/xml', '<a/>')],
  ['octets', of('application/octet-stream', Buffer.from([0, 255, 13, 10]))],
  ['a form', of('application/x-www-form-urlencoded', 'a=1&b=%20')],
  [
    'a multipart form',
    of(
      'multipart/form-data; boundary=b',
      '--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n',
    ),
  ],
  ['no content type', { headers: [], bytes: Buffer.from('{"a":1}') }],
  ['an invalid content type', of(';;nonsense', '{"a":1}')],
  ['no body', of(json, '')],
  [
    'chunks',
    {
      headers: [`Content-Type: ${json}`, 'Transfer-Encoding: chunked'],
      bytes: Buffer.from('{"a":[1,2]}'),
      data: { a: [1, 2] },
    },
  ],
];

/** Bodies that the parsers of an application treat differently. */
const SAMPLE = bodies.filter(([name]) =>
  ['JSON', '200 kB of JSON', 'text', 'octets', 'a form', 'chunks'].includes(name),
);

describe.each(adapters)('a webhook route of an application on %s', (name, createAdapter) => {
  describe.each(hosts[name]!)('%s', (host, { nest = {}, configure = () => undefined }) => {
    let started: StartedApp;
    let without: INestApplication;

    beforeAll(async () => {
      const controllers = [Endpoint, Neighbour] as Type[];
      started = await startApp(createAdapter(), { controllers, nest, configure });
      without = await startWithoutWebhooks(createAdapter(), { nest, configure });
    });
    afterAll(() => Promise.all([started.app.close(), without.close()]));

    it.each(host === 'with defaults' ? bodies : SAMPLE)(
      'gets the exact bytes of %s',
      async (_body, wire) => {
        const { headers, bytes, expected = GOOD, data } = wire;
        received.length = 0;
        const { token } = signedBody(bytes);
        const chunked = headers.some((line) => line.startsWith('Transfer-Encoding'));
        const connection = await RawConnection.open(started.port);
        connection.write(
          requestHead('POST', '/endpoint', [
            `Authorization: Bearer ${token}`,
            ...headers,
            ...(chunked ? [] : [`Content-Length: ${bytes.length}`]),
          ]),
        );
        const size = bytes.length.toString(16);
        await connection.writeAll(
          chunked ? Buffer.from(`${size}\r\n${bytes.toString()}\r\n0\r\n\r\n`) : bytes,
        );

        const answer = await connection.answer();
        connection.destroy();
        expect(outcome(answer)).toEqual(expected);
        if (expected !== GOOD) return expect(received).toEqual([]);
        expect(received).toHaveLength(1);
        // Jest compares buffers byte by byte, which is slow for two megabytes.
        expect(bytes.equals(await received[0]!.rawBody())).toBe(true);
        if (bytes.length > 0) expect(received[0]!.data).toEqual(data ?? bytes);
      },
    );

    it.each<[string, string, string]>([
      ['JSON', json, '{"a":1}'],
      ['invalid JSON', json, '{"a":'],
      ['2 MB of JSON', json, long(2e6)],
      ['text', 'text/plain', 'hello'],
      ['a form', 'application/x-www-form-urlencoded', 'a=1'],
    ])('leaves %s on other routes to the application', async (_body, type, body) => {
      const sending = { path: '/neighbour', body, headers: { 'content-type': type } };
      const { port } = without.getHttpServer().address() as AddressInfo;

      const answer = await send(started.origin, sending);
      const expected = await send(`http://127.0.0.1:${port}`, sending);

      expect(seen(answer)).toEqual(seen(expected));
    });
  });

  it('leaves a signed body to an application that verifies it without the guard', async () => {
    const { app, origin } = await startApp(createAdapter(), { controllers: [Neighbour] });
    const plain = await send(origin, { path: '/neighbour', body: '{"a":1}' });
    const { token, body } = signedBody('{"a":1}');
    const signedAnswer = await send(origin, { path: '/neighbour', token, body });
    await app.close();

    expect(seen(signedAnswer)).toEqual(seen(plain));
  });

  it("does not change the application's own limits and errors", async () => {
    const { app, origin } = await startApp(createAdapter(), { controllers: [Neighbour] });
    const statuses = await Promise.all(
      ['{"a":1}', '{"a":', long(2e6)].map(
        async (body) => (await send(origin, { path: '/neighbour', body })).status,
      ),
    );
    await app.close();

    expect(statuses).toEqual([201, 400, 413]);
  });
});

/** The same application without the module. */
async function startWithoutWebhooks(
  adapter: AbstractHttpAdapter,
  { nest, configure }: Required<Host>,
): Promise<INestApplication> {
  class Bare {}
  Module({ controllers: [Neighbour] })(Bare);
  const app = await NestFactory.create(Bare, adapter, { logger: false, ...nest });
  configure(app);
  await app.listen(0, '127.0.0.1');
  return app;
}

function seen({ status, text }: Answer): unknown {
  return [status, text];
}

// In HTTP/2, a body has neither a declared length nor a transfer encoding.
it('refuses a body over HTTP/2 that something else has read, even if hashes are optional', async () => {
  const adapter = new FastifyAdapter({ http2: true } as object);
  adapter.getInstance().addHook('preHandler', async ({ raw }) => {
    for await (const _ of raw);
  });
  const { app, origin } = await startApp(adapter, {
    options: receiverOptions({ requireHash: false }),
    controllers: [Endpoint],
  });
  const request = { method: 'POST', path: '/endpoint', token: signed({ data: {} }) };
  const read = await sendOver2(origin, { ...request, body: Buffer.from('{"a":1}') });
  const empty = await sendOver2(origin, { ...request, token: signed({ data: {} }) });
  await app.close();

  expect([read[':status'], read['webhook-error']]).toEqual([500, 'payload_consumed']);
  expect([empty[':status'], empty['webhook-error']]).toEqual([204, undefined]);
});

it.each(['/webhooks', '/endpoint'])(
  'lets the application close after it refused a large body over HTTP/2, at %s',
  async (path) => {
    const adapter = new FastifyAdapter({ http2: true, forceCloseConnections: true } as object);
    const { app, origin } = await startApp(adapter, {
      options: receiverOptions({ maxBodyBytes: 1_000_000 }),
      controllers: [Endpoint],
    });
    const body = Buffer.alloc(3_000_000, ' ');
    const answer = await sendOver2(origin, { method: 'POST', path, ...signedBody(body) });

    expect([answer[':status'], answer['webhook-error']]).toEqual([413, 'payload_too_large']);
    await app.close();
  },
);

it('handles a HEAD over HTTP/2, whose answer Node ends before it is written', async () => {
  received.length = 0;
  const adapter = new FastifyAdapter({ http2: true } as object);
  const { app, origin } = await startApp(adapter, { controllers: [Endpoint] });
  const request = { method: 'HEAD', path: '/endpoint', token: signed({ data: { id: 1 } }) };
  const [first, duplicate] = [await sendOver2(origin, request), await sendOver2(origin, request)];
  await app.close();

  expect([first[':status'], first['webhook-error']]).toEqual([204, undefined]);
  expect([duplicate[':status'], duplicate['webhook-duplicate']]).toEqual([204, 'true']);
  expect(received.map(({ data }) => data)).toEqual([{ id: 1 }]);
});
