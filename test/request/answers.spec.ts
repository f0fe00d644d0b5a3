import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import {
  Controller,
  HttpException,
  Injectable,
  UseGuards,
  type CanActivate,
  type Type,
} from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { IsInt } from 'class-validator';
import { digest } from 'nestjs-webhook-token/token';
import { okta, slack } from 'nestjs-webhook-token/senders';
import {
  WebhookStoreError,
  InProcessQueue,
  OnWebhookEvent,
  WebhookContext,
  WebhookData,
  WebhookRoute,
  type WebhookChannelMessages,
  type WebhookEvent,
} from 'nestjs-webhook-token';
import {
  WEBHOOK_ANSWERS,
  type WebhookAnswerRow,
  type WebhookSituation,
} from '../../lib/request/webhook-answers.js';
import { adapters } from '../fixtures/adapters.js';
import { forged } from '../fixtures/forged-token.js';
import { Gate } from '../fixtures/gate.js';
import { send, type Answer, type Sending } from '../fixtures/http-client.js';
import { RawConnection } from '../fixtures/raw-client.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';

const CHANNEL = 'nestjs-webhook-token:received';
type ReceivedMessage = WebhookChannelMessages[typeof CHANNEL];

type Method = 'HEAD' | 'POST';

const entryPoints = ['/webhooks', '/endpoint'] as const;
type EntryPoint = (typeof entryPoints)[number];

class Amount {
  @IsInt() amount!: number;
}

/** Handles events from both entry points; the event's name selects the behaviour. */
@Injectable()
class Work {
  readonly handled: string[] = [];
  /** Holds the handler of `order.held`. */
  gate = new Gate();

  async do(webhook: WebhookEvent): Promise<void> {
    const { event, id } = webhook;
    this.handled.push(id);
    if (event === 'order.late') await webhook.commit(undefined);
    if (event === 'order.failing') throw new Error('the database said something secret');
    if (event === 'order.teapot') throw new HttpException('short and stout', 418);
    if (event === 'order.gone') throw new HttpException('the order was deleted', 410);
    if (event === 'order.held') await this.gate.pass();
  }
}

@Injectable()
class Closed implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

@Injectable()
class Handlers {
  constructor(private readonly work: Work) {}

  @OnWebhookEvent([
    'order.created',
    'order.failing',
    'order.teapot',
    'order.gone',
    'order.held',
    'order.late',
  ])
  on(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.do(event);
  }

  @UseGuards(Closed)
  @OnWebhookEvent('order.guarded')
  onGuarded(): void {
    return;
  }

  @OnWebhookEvent('order.amount')
  onAmount(_amount: Amount): void {
    return;
  }
}

@Controller('endpoint')
class Endpoint {
  constructor(private readonly work: Work) {}

  @WebhookRoute()
  receive(@WebhookContext() event: WebhookEvent): Promise<void> {
    return this.work.do(event);
  }

  @UseGuards(Closed)
  @WebhookRoute('guarded')
  receiveGuarded(): void {
    return;
  }

  @WebhookRoute('amount')
  receiveAmount(@WebhookData() _amount: Amount): void {
    return;
  }
}

interface Target extends StartedApp {
  readonly store: ScriptedReplayStore;
  readonly work: Work;
}

async function startTarget(adapter: AbstractHttpAdapter): Promise<Target> {
  const store = new ScriptedReplayStore();
  const started = await startApp(adapter, {
    options: receiverOptions({
      issuers: [
        {
          issuer: ISSUER,
          keys: [{ key: SECRET, kid: 'a' }],
          events: ['order.*', 'refund.*'],
          contentTypes: ['application/json', 'text/*'],
        },
        // No server listens on the discard port.
        { issuer: 'https://away.example', jwksUri: 'https://127.0.0.1:8/keys' },
        { issuer: 'https://other.example', secret: 'another-secret-of-32-characters!' },
      ],
      jwksFetch: { allowPrivateNetworks: true },
      maxBodyBytes: 1_000,
      // A device is no directory.
      spool: { above: 500, directory: '/dev/null/spool' },
      unhandledEvent: 'reject',
      replay: { store },
    }),
    providers: [Work, Handlers],
    controllers: [Endpoint] as Type[],
  });
  return { ...started, store, work: started.app.get(Work) };
}

/** Produces one row of the answer table. */
interface Scenario {
  /** Default: HEAD and POST. */
  readonly methods?: readonly Method[];
  /** The entry point, if only one of them can give this answer. */
  readonly only?: EntryPoint;
  /** The request, if a single one is enough. */
  readonly request?: (method: Method) => Sending;
  /** Sends requests that need further steps; resolves to `undefined` if the sender has disconnected. */
  readonly produce?: (scene: Scene) => Promise<Answer | undefined>;
}

interface Scene extends Target {
  readonly method: Method;
  readonly path: EntryPoint;
  readonly createAdapter: () => AbstractHttpAdapter;
}

/** Rows that only receivers with another sender have. */
const ofSender = { only: '/webhooks', methods: ['POST'] } as const;

/** Sends an event, or another body, to a receiver of Slack. */
async function sendAsSlack(
  { path, createAdapter }: Scene,
  {
    body,
    now = Date.now(),
    headers,
  }: { now?: number } & Pick<Sending, 'headers'> & {
      body?: string;
    },
): Promise<Answer> {
  const sender = slack({ secret: SECRET });
  const { app, origin } = await startApp(createAdapter(), {
    options: receiverOptions({ issuers: [], sender }),
    providers: [Work, Handlers],
  });
  const data = JSON.parse(body ?? '{}') as { readonly type?: string };
  const { type: event = 'app_mention' } = data;
  const signed = await sender.sign({ event, data, now });
  const answer = await send(origin, {
    path,
    body: signed.body,
    headers: { ...signed.headers, ...headers },
  });
  await app.close();
  return answer;
}

const iat = Math.floor(Date.now() / 1_000);
const token = (claims: Record<string, unknown>): Sending => ({ token: forged({ claims }) });
const withBody = (sending: { token: string; body: Buffer }): Sending => sending;

const scenarios: Record<WebhookSituation, Scenario> = {
  processed: { request: () => ({ token: signed() }) },
  queued: {
    only: '/webhooks',
    produce: async ({ method, path, createAdapter }) => {
      const queueing = await startApp(createAdapter(), {
        options: receiverOptions({ acknowledge: 'queued', queue: new InProcessQueue() }),
        providers: [Work, Handlers],
      });
      const answer = await send(queueing.origin, { method, path, token: signed() });
      await queueing.app.close();
      return answer;
    },
  },
  duplicate: {
    produce: async ({ origin, method, path }) => {
      const copy = { method, path, token: signed() };
      await send(origin, copy);
      return send(origin, copy);
    },
  },
  challenge: {
    ...ofSender,
    produce: async (scene) => {
      const body = '{"type":"url_verification","challenge":"3eZbrw1aB"}';
      const answer = await sendAsSlack(scene, { body });
      expect(answer).toMatchObject({ status: 200, json: { challenge: '3eZbrw1aB' } });
      expect(answer.headers).toMatchObject({
        'cache-control': 'no-store',
        'content-type': 'application/json',
      });
      return undefined;
    },
  },
  missing_token: { request: () => ({ headers: { authorization: 'Basic dXNlcjpwYXNz' } }) },
  malformed_authorization: {
    request: () => ({ headers: { authorization: `Bearer ${signed()}, Bearer ${signed()}` } }),
  },
  invalid_token: { request: () => ({ token: 'a.b.c' }) },
  bad_signature: { request: () => ({ token: forged({ secret: 'not the secret' }) }) },
  unknown_key: { request: () => ({ token: forged({ header: { kid: 'b' } }) }) },
  wrong_issuer: { request: () => token({ iss: 'https://unknown.example' }) },
  wrong_audience: { request: () => token({ aud: 'https://other-audience.example' }) },
  token_expired: { request: () => token({ iat: iat - 700, exp: iat - 400 }) },
  token_not_yet_valid: { request: () => token({ nbf: iat + 200 }) },
  token_too_old: { request: () => token({ exp: iat + 90_000 }) },
  missing_claim: { request: () => token({ jti: undefined }) },
  invalid_claim: { request: () => token({ webhook: { event: 'no dots' } }) },
  replayed: {
    produce: async ({ origin, method, path }) => {
      const id = crypto.randomUUID();
      await send(origin, { method, path, token: signed({ id, data: { a: 1 } }) });
      return send(origin, { method, path, token: signed({ id, data: { a: 2 } }) });
    },
  },
  event_forbidden: { request: () => ({ token: signed({ event: 'payout.made' }) }) },
  missing_signature: {
    ...ofSender,
    produce: (scene) => sendAsSlack(scene, { headers: { 'x-slack-signature': [] } }),
  },
  malformed_signature: {
    ...ofSender,
    produce: (scene) => sendAsSlack(scene, { headers: { 'x-slack-signature': 'v1=00' } }),
  },
  invalid_signature: {
    ...ofSender,
    produce: (scene) => sendAsSlack(scene, { headers: { 'x-slack-signature': 'v0=00' } }),
  },
  timestamp_out_of_tolerance: {
    ...ofSender,
    produce: (scene) => sendAsSlack(scene, { now: Date.now() - 301_000 }),
  },
  hash_required: {
    methods: ['POST'],
    request: () => withBody({ token: signed(), body: Buffer.from('{}') }),
  },
  hash_mismatch: {
    methods: ['POST'],
    request: () => withBody({ ...signedBody('{"a":1}'), body: Buffer.from('{"a":2}') }),
  },
  hash_unsupported: {
    request: (method) =>
      method === 'HEAD'
        ? { token: signed({ hash: digest('sha256', Buffer.alloc(0)) }) }
        : token({
            webhook: { event: 'order.created', hash: 'md5:d41d8cd98f00b204e9800998ecf8427e' },
          }),
  },
  invalid_payload: { methods: ['POST'], request: () => withBody(signedBody('{"a":')) },
  payload_incomplete: {
    methods: ['POST'],
    produce: async ({ port, path }) => {
      const reported = nextReport();
      const connection = await RawConnection.open(port);
      const { token, body } = signedBody('{"a":1}');
      connection
        .write([`POST ${path} HTTP/1.1`, 'Host: receiver.example'])
        .write(['Content-Type: application/json', `Content-Length: ${body.length}`])
        .write([`Authorization: Bearer ${token}`, ''])
        .write('{"a"')
        .end();

      expect(await reported).toMatchObject({ situation: 'payload_incomplete', status: 400 });
      connection.destroy();
      return undefined;
    },
  },
  method_not_allowed: { methods: ['POST'], request: () => ({ method: 'PUT' }) },
  in_progress: {
    produce: async ({ origin, method, path, work }) => {
      work.gate = new Gate();
      const copy = { method, path, token: signed({ event: 'order.held' }) };
      const first = send(origin, copy);
      await work.gate.reached;
      const second = await send(origin, copy);
      work.gate.open();
      expect((await first).status).toBe(204);
      return second;
    },
  },
  lease_lost: { request: () => ({ token: signed({ event: 'order.late' }) }) },
  payload_too_large: { methods: ['POST'], request: () => withBody(signedBody('x'.repeat(1_001))) },
  unsupported_encoding: {
    methods: ['POST'],
    request: () => ({ ...signedBody('{}'), headers: { 'content-encoding': 'gzip' } }),
  },
  unsupported_content_type: {
    methods: ['POST'],
    request: () => ({ ...signedBody('x'), headers: { 'content-type': 'image/png' } }),
  },
  validation_failed: {
    produce: ({ origin, method, path }) => {
      const target = path === '/endpoint' ? '/endpoint/amount' : path;
      const invalid = signed({ event: 'order.amount', data: { amount: 'many' } });
      return send(origin, { method, path: target, token: invalid });
    },
  },
  event_unhandled: {
    only: '/webhooks',
    request: () => ({ token: signed({ event: 'refund.made' }) }),
  },
  token_too_large: {
    produce: ({ app, origin, method, path }) => {
      // Node's own limit for headers is lower, so it would answer 431 first.
      (app.getHttpServer() as { maxHeaderSize: number }).maxHeaderSize = 65_536;
      return send(origin, {
        method,
        path,
        token: forged({ claims: { more: 'x'.repeat(16_384) } }),
      });
    },
  },
  handler_failed: { request: () => ({ token: signed({ event: 'order.failing' }) }) },
  application_refused: {
    produce: ({ origin, method, path }) => {
      const target = path === '/endpoint' ? '/endpoint/guarded' : path;
      return send(origin, { method, path: target, token: signed({ event: 'order.guarded' }) });
    },
  },
  batch_unsupported: {
    only: '/endpoint',
    methods: ['POST'],
    produce: async ({ path, createAdapter }) => {
      const adapter = createAdapter();
      adapter.registerParserMiddleware('', true);
      const { app, origin } = await startApp(adapter, {
        options: receiverOptions({ issuers: [], sender: okta({ value: SECRET }) }),
        providers: [Work],
        controllers: [Endpoint],
      });
      const event = { uuid: 'u1', eventType: 'user.created' };
      const body = JSON.stringify({ data: { events: [event, { ...event, uuid: 'u2' }] } });
      const headers = { authorization: SECRET, 'content-type': 'application/json' };
      const answer = await send(origin, { path, headers, body });
      await app.close();
      return answer;
    },
  },
  payload_consumed: {
    only: '/endpoint',
    methods: ['POST'],
    produce: async ({ path, createAdapter }) => {
      const reading = await startTarget(bodiesRead(createAdapter()));
      const answer = await send(reading.origin, { path, ...signedBody('{"a":1}') });
      await reading.app.close();
      return answer;
    },
  },
  store_unavailable: {
    produce: async ({ origin, method, path, store }) => {
      store.failure = new WebhookStoreError('store_full', 'the store takes no more');
      const answer = await send(origin, { method, path, token: signed() });
      store.failure = undefined;
      return answer;
    },
  },
  spool_unavailable: { methods: ['POST'], request: () => withBody(signedBody('x'.repeat(501))) },
  keys_unavailable: { request: () => token({ iss: 'https://away.example' }) },
  shutting_down: {
    produce: async ({ method, path, createAdapter }) => {
      const { app, origin, work } = await startTarget(createAdapter());
      const first = send(origin, { path, token: signed({ event: 'order.held' }) });
      await work.gate.reached;
      const closed = app.close();
      // The application does not report when the receiver starts to shut down.
      let answer: Answer;
      do answer = await send(origin, { method, path, token: signed() });
      while (answer.status === 204);
      work.gate.open();
      expect((await first).status).toBe(204);
      await closed;
      return answer;
    },
  },
};

const bothMethods: readonly Method[] = ['HEAD', 'POST'];
/** Every row by POST at both entry points. A HEAD only has no body in its answer: one entry point shows that. */
const cases = Object.entries(scenarios).flatMap(([situation, { only, methods = bothMethods }]) =>
  entryPoints
    .filter((target) => only === undefined || only === target)
    .flatMap((target) =>
      methods
        .filter((method) => method === 'POST' || target === '/webhooks')
        .map((method) => [situation as WebhookSituation, method, target] as const),
    ),
);

describe.each(adapters)('the answers of a receiver on %s', (_, createAdapter) => {
  let receiver: Target;

  beforeAll(async () => (receiver = await startTarget(createAdapter())));
  afterAll(() => receiver.app.close());

  it.each(cases)('%s to %s %s', async (situation, method, path) => {
    const { produce, request } = scenarios[situation];

    const answer = await (produce?.({ ...receiver, method, path, createAdapter }) ??
      send(receiver.origin, { method, path, ...request!(method) }));

    if (answer !== undefined) expectRow(answer, situation, method);
  });

  it.each(entryPoints)(
    '%s answers with the status of an HttpException of a handler',
    async (path) => {
      const teapot = await send(receiver.origin, {
        path,
        token: signed({ event: 'order.teapot' }),
      });

      expect(teapot).toMatchObject({
        status: 418,
        headers: { 'webhook-error': 'handler_failed' },
        json: { code: 'handler_failed', status: 418, detail: 'short and stout' },
      });
    },
  );

  it.each(entryPoints)(
    '%s answers 500 if a handler throws 410, which would disable the endpoint',
    async (path) => {
      const gone = await send(receiver.origin, { path, token: signed({ event: 'order.gone' }) });

      expect(gone).toMatchObject({
        status: 500,
        headers: { 'webhook-error': 'handler_failed' },
        json: { code: 'handler_failed', status: 500, detail: 'the order was deleted' },
      });
    },
  );

  it.each(entryPoints)('%s does not reveal other errors of a handler', async (path) => {
    const failed = await send(receiver.origin, { path, token: signed({ event: 'order.failing' }) });

    expect(failed.text).not.toContain('secret');
  });

  it.each(entryPoints)('%s fails closed if the store throws an unknown error', async (path) => {
    receiver.store.failure = new TypeError('the driver is confused');
    const answer = await send(receiver.origin, { path, token: signed() });
    receiver.store.failure = undefined;

    expectRow(answer, 'store_unavailable', 'POST');
    expect(answer.text).not.toContain('driver');
  });

  it.each(entryPoints)('%s handles one of twenty concurrent copies', async (path) => {
    const { origin, work } = receiver;
    work.gate = new Gate();
    const copy = { method: 'HEAD', path, token: signed({ event: 'order.held' }) };
    const before = work.handled.length;
    const statuses: number[] = [];

    await Promise.all(
      Array.from({ length: 20 }, async () => {
        const { status } = await send(origin, copy);
        // Nineteen copies are answered while the first is held; then it is released.
        if (statuses.push(status) === 19) work.gate.open();
      }),
    );

    expect(statuses).toEqual([...Array<number>(19).fill(409), 204]);
    expect(work.handled).toHaveLength(before + 1);
  });
});

it('has a scenario for every row', () => {
  expect(Object.keys(scenarios).sort()).toEqual(Object.keys(WEBHOOK_ANSWERS).sort());
});

it('accepts a body that Express has already read if rawBody kept its bytes', async () => {
  const [, createExpress] = adapters[0]!;
  const adapter = createExpress();
  adapter.registerParserMiddleware('', true);
  const { app, origin } = await startTarget(adapter);

  const good = await send(origin, { path: '/endpoint', ...signedBody('{ "a": 1 }') });
  const changed = await send(origin, {
    path: '/endpoint',
    ...signedBody('{ "a": 1 }'),
    body: '{ "a": 2 }',
  });
  await app.close();

  expect(good.status).toBe(204);
  expectRow(changed, 'hash_mismatch', 'POST');
});

function expectRow(answer: Answer, situation: WebhookSituation, method: Method): void {
  const row: WebhookAnswerRow = WEBHOOK_ANSWERS[situation];
  const { headers, json } = answer;
  expect(answer.status).toBe(row.status);
  expect(headers['cache-control']).toBe('no-store');
  for (const name of ['Allow', 'Retry-After', 'Webhook-Duplicate']) {
    expect([name, headers[name.toLowerCase()]]).toEqual([name, row.headers?.[name]]);
  }
  expect(headers['webhook-error']).toBe(row.code);
  expectChallenge(headers['www-authenticate'], row);
  if (row.status < 300 || method === 'HEAD') {
    expect(answer.text).toBe('');
    return;
  }
  expect(headers['content-type']).toMatch(/^application\/problem\+json(?:; charset=utf-8)?$/);
  expect(json).toMatchObject({
    type: 'about:blank',
    title: row.title,
    status: row.status,
    detail: expect.any(String),
  });
  expect(json?.['code']).toBe(row.code);
}

/** RFC 9110, section 11.6.1, and RFC 6750, section 3: one challenge, with quoted parameters. */
function expectChallenge(header: string | undefined, row: WebhookAnswerRow): void {
  if (row.challenge === undefined) return expect(header).toBeUndefined();
  const parameter = '[a-z_]+="[\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]*"';
  expect(header).toMatch(new RegExp(`^Bearer ${parameter}(?:, ${parameter})*$`));
  const parameters = [...header!.matchAll(/([a-z_]+)="([^"]*)"/g)].map(([, name, value]) => [
    name,
    value,
  ]);
  expect(Object.fromEntries(parameters)).toEqual(
    row.challenge === 'plain'
      ? { realm: 'webhooks' }
      : {
          realm: 'webhooks',
          error: row.challenge,
          error_description: expect.any(String),
          code: row.code,
        },
  );
}

/** The message on the diagnostics channel for the next request. */
function nextReport(): Promise<ReceivedMessage> {
  return new Promise((resolve) => {
    const listener = (message: unknown): void => {
      unsubscribe(CHANNEL, listener);
      resolve(message as ReceivedMessage);
    };
    subscribe(CHANNEL, listener);
  });
}

/** An adapter that reads and discards every body before the guard runs. */
function bodiesRead(adapter: AbstractHttpAdapter): AbstractHttpAdapter {
  if (adapter.getType() === 'express') {
    adapter.registerParserMiddleware('', false);
    return adapter;
  }
  const fastify = adapter.getInstance<{
    addHook(name: string, hook: (request: { raw: IncomingMessage }) => Promise<void>): void;
  }>();
  fastify.addHook('onRequest', async ({ raw }) => {
    raw.resume();
    await once(raw, 'end');
  });
  return adapter;
}
