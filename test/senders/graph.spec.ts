import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { generateKeyPairSync } from 'node:crypto';
import { InProcessQueue, WebhookConfigurationError } from 'nestjs-webhook-token';
import { graph } from 'nestjs-webhook-token/senders';
import { deliverWebhook, flushDeliveries, TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { forgedJwt } from '../fixtures/forged-jwt.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import { sendTruncated } from '../fixtures/raw-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';

const OLD = 'the-old-client-state';
const NEW = 'the-new-client-state';
const CHALLENGE =
  'Validation: Testing client application reachability for subscription Request-Id: 5f-1';
const PUBLISHER = '0bf30f3b-4a52-48df-9a82-234910c4a086';
const entra = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const stranger = generateKeyPairSync('rsa', { modulusLength: 2_048 });

type Json = Record<string, unknown>;

const clock = new TestClock(Date.parse('2026-11-24T10:00:00.400Z'));
const seconds = (): number => Math.floor(clock.now() / 1_000);

describe.each(adapters)('a receiver of Microsoft Graph on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let handlers: ReceivedEvents;
  let jwks: JwksServer;
  beforeAll(async () => {
    jwks = await JwksServer.start([{ ...entra.publicKey.export({ format: 'jwk' }), kid: 'k1' }]);
    receiver = await startApp(createAdapter(), {
      options: {
        receiver: [
          { name: 'graph', path: 'graph', sender: graph({ clientState: [OLD, NEW] }) },
          {
            name: 'large',
            path: 'large',
            sender: graph({ clientState: OLD }),
            maxJsonMembers: 200_000,
          },
          {
            name: 'rich',
            path: 'rich',
            sender: graph({
              clientState: OLD,
              tenant: 't-1',
              audience: 'app-1',
              jwksUri: jwks.uri,
              jwksFetch: { ca: JWKS_CA, allowPrivateNetworks: true },
            }),
          },
          {
            name: 'queued',
            path: 'queued',
            sender: graph({ clientState: OLD }),
            acknowledge: 'queued',
            queue: new InProcessQueue(),
          },
        ],
        clock,
      },
      providers: [ReceivedEvents],
    });
    handlers = receiver.app.get(ReceivedEvents);
  });
  beforeEach(() => {
    handlers.clear();
  });
  afterAll(async () => {
    await receiver.app.close();
    await jwks.close();
  });

  const item = (more: Json = {}): Json => ({
    id: `n-${nextNumber()}`,
    subscriptionId: 's-1',
    changeType: 'created',
    resource: "Users/u-1/Messages('m-1')",
    resourceData: { '@odata.type': '#Microsoft.Graph.Message', id: 'm-1' },
    clientState: OLD,
    ...more,
  });
  const post = (body: string | Json, path = '/graph', headers = {}): Promise<Answer> =>
    send(receiver.origin, {
      path,
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const codeOf = ({ status, headers }: Answer): unknown[] => [status, headers['webhook-error']];

  it.each([OLD, NEW])(
    'accepts an item with the clientState %s, and hides it',
    async (clientState) => {
      const { status } = await post({
        value: [item({ id: `i-${clientState.slice(4, 7)}`, clientState })],
      });
      const [seen] = handlers.seen;

      expect(status).toBe(200);
      expect(seen).toMatchObject({
        event: 'message.created',
        id: `i-${clientState.slice(4, 7)}`,
        issuer: 'graph',
        bodyVerified: false,
        data: { subscriptionId: 's-1', resourceData: { id: 'm-1' } },
      });
      expect(`${JSON.stringify(seen!.data)}${String(await seen!.rawBody())}`).not.toContain(
        'client-state',
      );
    },
  );

  it.each([
    [{ resourceData: undefined, changeType: 'updated' }, 'updated'],
    [{ resourceData: { '@odata.type': '#microsoft.graph.driveItem' } }, 'driveItem.created'],
    [{ changeType: undefined, lifecycleEvent: 'missed' }, 'lifecycle.missed'],
  ])('names %j', async (more, name) => {
    await post({ value: [item(more)] });

    expect(handlers.seen[0]!.event).toBe(name);
  });

  it('handles and records each item by itself', async () => {
    const [first, second] = [item(), item()];
    handlers.fail(String(second['id']));
    const failed = await post({ value: [first, second] });
    handlers.failures.clear();
    const repeated = await post({ value: [first, second] });

    expect([failed.status, repeated.status]).toEqual([500, 200]);
    expect(handlers.seen.map(({ id }) => id)).toEqual([first['id'], second['id'], second['id']]);
  });

  it('acknowledges a replay without handling it again', async () => {
    const body = { value: [item()] };
    const answers = [await post(body), await post(body)];

    expect(answers.map(({ headers }) => headers['webhook-duplicate'])).toEqual([undefined, 'true']);
    expect(handlers.seen).toHaveLength(1);
  });

  it('takes two equal items without an id for two events', async () => {
    const { id: _id, ...same } = item();
    await post({ value: [same] });
    await post({ value: [same] });

    expect(handlers.seen).toHaveLength(2);
  });

  it.each<[string, () => string]>([
    ['another clientState', () => JSON.stringify({ value: [item({ clientState: 'other' })] })],
    ['a part of it', () => JSON.stringify({ value: [item({ clientState: OLD.slice(1) })] })],
    ['no clientState', () => JSON.stringify({ value: [item({ clientState: undefined })] })],
    ['a list of them', () => JSON.stringify({ value: [item({ clientState: [OLD] })] })],
    [
      'one item of another subscription',
      () => JSON.stringify({ value: [item(), item({ clientState: 'x' })] }),
    ],
    ['no items', () => JSON.stringify({ value: [] })],
    ['no value', () => JSON.stringify(item())],
    ['a truncated body', () => JSON.stringify({ value: [item()] }).slice(0, -2)],
    ['no body', () => ''],
  ])('rejects %s', async (_case, body) => {
    expect(codeOf(await post(body()))).toEqual([401, 'invalid_signature']);
    expect(handlers.seen).toEqual([]);
  });

  it('reads as much JSON as the receiver allows', async () => {
    const more = Object.fromEntries(Array.from({ length: 120_000 }, (_one, n) => [`m${n}`, n]));
    const body = { value: [item({ resourceData: more, changeType: 'updated' })] };
    const answers = [await post(body), await post(body, '/large')];

    expect(answers.map(({ status }) => status)).toEqual([401, 200]);
    expect(handlers.seen.map(({ receiver: name }) => name)).toEqual(['large']);
  });

  it('reads JSON whatever the content type says', async () => {
    const { status } = await post({ value: [item()] }, '/graph', { 'content-type': 'text/plain' });

    expect(status).toBe(200);
    expect(handlers.seen).toMatchObject([{ event: 'message.created' }]);
  });

  it('rejects a body that ends too early', async () => {
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ value: [item()] });
    await sendTruncated(receiver.port, '/graph', { headers, body });

    expect(handlers.seen).toEqual([]);
  });

  describe('the validation of the URL', () => {
    const validate = (token: string, path = '/graph'): Promise<Answer> =>
      send(receiver.origin, { path: `${path}?validationToken=${token}`, body: '' });

    it.each(['/graph', '/queued'])('is answered in plain text at %s', async (path) => {
      const answer = await validate(encodeURIComponent(CHALLENGE), path);

      expect([answer.status, answer.text]).toEqual([200, CHALLENGE]);
      expect(answer.headers).toMatchObject({
        'content-type': 'text/plain',
        'x-content-type-options': 'nosniff',
        'cache-control': 'no-store',
      });
      expect(handlers.seen).toEqual([]);
    });

    it.each([
      ['markup', '<script>alert(1)</script>'],
      ['a line break', 'a\r\nSet-Cookie: x=1'],
      ['no text', ''],
      ['a long text', 'x'.repeat(1_025)],
      ['other characters', 'é'],
    ])('reflects no %s', async (_case, token) => {
      const answer = await validate(encodeURIComponent(token));

      expect(codeOf(answer)).toEqual([401, 'invalid_signature']);
      if (token !== '') expect(answer.text).not.toContain(token);
    });

    it('needs a POST', async () => {
      const path = '/graph?validationToken=abc';

      expect((await send(receiver.origin, { method: 'GET', path })).status).toBe(405);
    });
  });

  describe('notifications with resource data', () => {
    const token = (claims: Json = {}, header: Json = {}, key = entra.privateKey): string =>
      forgedJwt(
        { alg: 'RS256', kid: 'k1', ...header },
        {
          iss: 'https://login.microsoftonline.com/t-1/v2.0',
          aud: 'app-1',
          iat: seconds(),
          exp: seconds() + 3_600,
          azp: PUBLISHER,
          ...claims,
        },
        key,
      );
    const rich = (tokens: unknown, more: Json = { encryptedContent: { data: '…' } }) =>
      post({ value: [item(more)], validationTokens: tokens }, '/rich');

    it('are accepted with valid tokens of either version', async () => {
      const old = { iss: 'https://sts.windows.net/t-1/', azp: undefined, appid: PUBLISHER };
      const { status } = await rich([token(), token(old)]);

      expect(status).toBe(200);
      expect(handlers.seen[0]!.bodyVerified).toBe(false);
    });

    it('need no token without resource data', async () => {
      expect((await rich(undefined, {})).status).toBe(200);
    });

    it.each<[string, () => unknown, string]>([
      ['no token', () => undefined, 'missing_token'],
      ['an empty list', () => [], 'missing_token'],
      ['no list', () => token(), 'invalid_token'],
      ['many tokens', () => Array.from({ length: 17 }, () => token()), 'invalid_token'],
      ['another key', () => [token({}, {}, stranger.privateKey)], 'bad_signature'],
      ['one of another key', () => [token(), token({}, {}, stranger.privateKey)], 'bad_signature'],
      ['no algorithm', () => [token({}, { alg: 'none' })], 'invalid_token'],
      ['HS256', () => [token({}, { alg: 'HS256' })], 'invalid_token'],
      ['another tenant', () => [token({ iss: 'https://sts.windows.net/t-2/' })], 'wrong_issuer'],
      ['another application', () => [token({ aud: 'app-2' })], 'wrong_audience'],
      ['another sender', () => [token({ azp: 'x', appid: PUBLISHER })], 'invalid_claim'],
      ['no sender', () => [token({ azp: undefined })], 'invalid_claim'],
      ['an old token', () => [token({ exp: seconds() - 61 })], 'token_expired'],
      ['a token of the future', () => [token({ iat: seconds() + 62 })], 'token_not_yet_valid'],
    ])('are rejected with %s', async (_case, tokens, code) => {
      expect(codeOf(await rich(tokens()))).toEqual([401, code]);
      expect(handlers.seen).toEqual([]);
    });
  });

  it('queues an event without its clientState', async () => {
    const answer = await post({ value: [item({ id: 'q-1' })] }, '/queued');
    await flushDeliveries(receiver.app);

    expect(answer.status).toBe(200);
    expect(handlers.seen[0]).toMatchObject({ id: 'q-1', data: { subscriptionId: 's-1' } });
    expect(JSON.stringify(handlers.seen[0]!.data)).not.toContain(OLD);
  });

  it.each(['message.created', 'updated', 'lifecycle.missed'])(
    'delivers a test %s',
    async (event) => {
      const options = { receiver: 'graph', sender: graph({ clientState: OLD }) };
      const answer = await deliverWebhook(receiver.app, event, { resource: 'r' }, options);

      expect(answer).toMatchObject({ status: 200, outcome: 'handled' });
      expect(handlers.seen[0]).toMatchObject({ event, data: { resource: 'r' } });
    },
  );
});

it.each<[string, object, RegExp]>([
  ['no clientState', {}, /clientState/],
  ['an empty clientState', { clientState: '' }, /clientState/],
  ['no tenant', { clientState: OLD, audience: 'app-1' }, /tenant/],
])('refuses %s', (_, options, message) => {
  const create = () => graph(options as never);

  expect(create).toThrow(WebhookConfigurationError);
  expect(create).toThrow(message);
});

let number = 0;
function nextNumber(): number {
  return ++number;
}
