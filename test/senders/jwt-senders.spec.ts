import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  jest,
} from '@jest/globals';
import { createHash, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { inspect } from 'node:util';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { WebhookConfigurationError } from '../../lib/index.js';
import {
  a2a,
  eventGrid,
  googlePush,
  jwtSender,
  plaid,
  qstash,
  type PlaidKey,
  type WebhookSender,
} from '../../lib/senders/index.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { forgedJwt } from '../fixtures/forged-jwt.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import { RawConnection, sendTruncated } from '../fixtures/raw-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { slowBody } from '../fixtures/slow-body.js';
import { verifierFor } from '../fixtures/verifier-for.js';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const stranger = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const strangerEc = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const SECRET = 'sig_a-signing-key-of-32-characters';
const NEXT = 'sig_the-next-key-of-32-characters!';

const keys = [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }] as const;
const signingKey = { kid: 'k1', alg: 'RS256', key: rsa.privateKey } as const;
const plaidKey = { use: 'sig', ...ec.publicKey.export({ format: 'jwk' }) } as unknown as PlaidKey;
const jwk = { ...rsa.publicKey.export({ format: 'jwk' }), kid: 'k1', alg: 'RS256' };

interface Scheme {
  /** Of the receiver. */
  readonly receive: () => WebhookSender;
  /** Of the tests: it also has the private key. */
  readonly sender: WebhookSender;
  readonly event: string;
  readonly data: Record<string, unknown>;
  /** Claims that the receiver accepts. */
  readonly claims: Record<string, unknown>;
  readonly header: string;
  readonly alg: 'RS256' | 'ES256' | 'HS256';
  /** The claim with the digest of the body. */
  readonly digest?: { readonly claim: string; readonly encoding: 'hex' | 'base64url' | 'base64' };
  /** Whether the token has `iat` only. */
  readonly ages?: true;
  /** Whether a replayed token with another event is a conflict. */
  readonly singleUse: boolean;
}

const forwarded = (data: { type: string }) => data.type;
const acme = (encoding: 'hex' | 'base64url' | 'base64', more: object): WebhookSender =>
  jwtSender({
    name: `acme-${encoding}`,
    issuer: 'https://acme.example',
    audience: ['https://shop.example', 'shop'],
    digest: { claim: 'sum', encoding },
    event: ({ data }) => forwarded(data as { type: string }),
    ...more,
  });
const acmeScheme = (encoding: 'hex' | 'base64url' | 'base64'): Scheme => ({
  receive: () => acme(encoding, { keys }),
  sender: acme(encoding, { signingKey }),
  event: 'thing.made',
  data: { type: 'thing.made' },
  claims: { iss: 'https://acme.example', aud: 'shop' },
  header: 'authorization',
  alg: 'RS256',
  digest: { claim: 'sum', encoding },
  singleUse: true,
});

let jwks: JwksServer;
const google = (more: object): WebhookSender =>
  googlePush({
    audience: 'https://shop.example/push',
    serviceAccount: 'Push@shop.iam.gserviceaccount.com',
    ...more,
  });
const grid = (more: object): WebhookSender =>
  eventGrid({
    tenant: 't-1',
    audience: 'api://shop',
    claims: { appid: ['grid', 'other'] },
    ...more,
  });

const SCHEMES: Record<string, Scheme> = {
  'jwtSender, hex': acmeScheme('hex'),
  'jwtSender, base64': acmeScheme('base64'),
  'jwtSender, base64url': acmeScheme('base64url'),
  a2a: {
    receive: () => a2a({ issuer: 'https://agent.example', audience: 'client', keys }),
    sender: a2a({ issuer: 'https://agent.example', audience: 'client', signingKey }),
    event: 'task.input-required',
    data: { statusUpdate: { taskId: 't1', status: { state: 'TASK_STATE_INPUT_REQUIRED' } } },
    claims: { iss: 'https://agent.example', aud: 'client' },
    header: 'authorization',
    alg: 'RS256',
    singleUse: true,
  },
  googlePush: {
    receive: () =>
      google({ jwksUri: jwks.uri, jwksFetch: { ca: JWKS_CA, allowPrivateNetworks: true } }),
    sender: google({ signingKey }),
    event: 'OBJECT_FINALIZE',
    data: { message: { data: { bucket: 'b1' } } },
    claims: {
      iss: 'accounts.google.com',
      aud: 'https://shop.example/push',
      email: 'push@shop.iam.gserviceaccount.com',
      email_verified: true,
    },
    header: 'authorization',
    alg: 'RS256',
    singleUse: false,
  },
  eventGrid: {
    receive: () => grid({ keys }),
    sender: grid({ signingKey }),
    event: 'Microsoft.Storage.BlobCreated',
    data: { topic: '/subscriptions/1', data: { api: 'PutBlob' } },
    claims: { iss: 'https://sts.windows.net/t-1/', aud: 'api://shop', appid: 'other' },
    header: 'authorization',
    alg: 'RS256',
    singleUse: false,
  },
  qstash: {
    receive: () => qstash({ secret: [NEXT, SECRET], url: 'https://shop.example/q' }),
    sender: qstash({ secret: SECRET, url: 'https://shop.example/q' }),
    event: 'message',
    data: { order: 1 },
    claims: { iss: 'Upstash', sub: 'https://shop.example/q' },
    header: 'upstash-signature',
    alg: 'HS256',
    digest: { claim: 'body', encoding: 'base64url' },
    singleUse: true,
  },
  plaid: {
    receive: () =>
      plaid({
        key: async (kid) => (kid === 'k1' ? { ...plaidKey, expired_at: null } : undefined),
      }),
    sender: plaid({
      key: () => undefined,
      signingKey: { kid: 'k1', alg: 'ES256', key: ec.privateKey },
    }),
    event: 'TRANSACTIONS.SYNC_UPDATES_AVAILABLE',
    data: { item_id: 'i1' },
    claims: {},
    header: 'plaid-verification',
    alg: 'ES256',
    digest: { claim: 'request_body_sha256', encoding: 'hex' },
    ages: true,
    singleUse: true,
  },
};

const clock = new TestClock(Date.parse('2026-11-24T10:00:00.400Z'));
const seconds = (): number => Math.floor(clock.now() / 1_000);

type Sent = { headers: Record<string, string | string[]>; body: Buffer | string };

describe.each(adapters)('a receiver of a sender with a JWT on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let handlers: ReceivedEvents;
  beforeAll(async () => {
    jwks = await JwksServer.start([jwk]);
    receiver = await startApp(createAdapter(), {
      options: {
        receiver: Object.entries(SCHEMES).map(([name, { receive }]) => ({
          name,
          path: pathOf(name),
          sender: receive(),
          maxBodyBytes: 10_000,
        })),
        clock,
      },
      providers: [ReceivedEvents],
    });
    handlers = receiver.app.get(ReceivedEvents);
  });
  beforeEach(() => handlers.clear());
  afterAll(async () => {
    await receiver.app.close();
    await jwks.close();
  });

  describe.each(Object.entries(SCHEMES))('%s', (name, scheme) => {
    const { sender, event, data, header, digest, alg } = scheme;
    const privateKey: KeyObject | string =
      alg === 'HS256' ? SECRET : alg === 'ES256' ? ec.privateKey : rsa.privateKey;
    const publicPem = (alg === 'ES256' ? ec : rsa).publicKey.export({
      type: 'spki',
      format: 'pem',
    });

    const sign = async (): Promise<Sent> =>
      sender.sign({ event, data: { ...data, n: nextNumber() }, now: clock.now() });
    const deliver = ({ headers, body }: Sent): Promise<Answer> =>
      send(receiver.origin, { path: `/${pathOf(name)}`, headers, body });
    /** A request whose token has these claims. */
    const forge = async (
      claims: Record<string, unknown> = {},
      {
        key = privateKey,
        ...joseHeader
      }: Record<string, unknown> & { key?: KeyObject | string } = {},
    ): Promise<Sent> => {
      const { headers, body } = await sign();
      const token = forgedJwt(
        { alg, ...(alg !== 'HS256' && { kid: 'k1' }), ...joseHeader },
        {
          iat: seconds(),
          ...(scheme.ages === undefined && { exp: seconds() + 300 }),
          jti: `j-${nextNumber()}`,
          ...scheme.claims,
          ...(digest && {
            [digest.claim]: createHash('sha256').update(body).digest(digest.encoding),
          }),
          ...claims,
        },
        key,
      );
      return { headers: { ...headers, ...withToken(token) }, body };
    };
    const withToken = (token: string): Record<string, string> => ({
      [header]: header === 'authorization' ? `Bearer ${token}` : token,
    });
    const tokenOf = ({ headers }: Sent): string =>
      (headers[header] as string).replace(/^Bearer /, '');

    async function expectRefused(sent: Sent, code: string, status = 401): Promise<void> {
      const answer = await deliver(sent);
      expect([answer.status, answer.headers['webhook-error']]).toEqual([status, code]);
      expect(answer.headers['www-authenticate']).toBeUndefined();
      expect(handlers.seen).toEqual([]);
    }

    it('accepts a signed request, and hands its event to the handler', async () => {
      const answer = await deliver(await sign());
      const [seen] = handlers.seen;

      expect(answer.status).toBe(200);
      expect(seen).toMatchObject({ event, issuer: sender.name, profile: sender.name });
      expect(seen).toMatchObject({ bodyVerified: digest !== undefined, receiver: name });
      expect(seen!.data).toMatchObject(data);
      expect(seen!.claims['token']).toMatchObject({ iat: seconds() });
    });

    it('accepts a token that another library has made', async () => {
      expect((await deliver(await forge())).status).toBe(200);
    });

    it('refuses a token of another key', async () => {
      const key = alg === 'HS256' ? 'x'.repeat(32) : alg === 'ES256' ? strangerEc : stranger;

      await expectRefused(
        await forge({}, { key: typeof key === 'string' ? key : key.privateKey }),
        'bad_signature',
      );
    });

    it('refuses a token of an unknown key', async () => {
      if (alg === 'HS256') return;
      await expectRefused(await forge({}, { kid: 'k2' }), 'unknown_key');
    });

    it.each<[string, Record<string, unknown>]>([
      ['another algorithm', { alg: 'PS256' }],
      ['HS256 with the public key as its secret', { alg: 'HS256', key: publicPem }],
      ['no algorithm', { alg: 'none', key: '' }],
      ['a token for another purpose', { typ: 'secevent+jwt' }],
      ['a webhook token', { typ: 'webhook+jwt' }],
      ['a critical extension', { crit: ['b64'], b64: false }],
    ])('refuses %s', async (_case, joseHeader) => {
      const isOther = alg === 'HS256' && joseHeader['alg'] === 'HS256';
      await expectRefused(await forge({}, joseHeader), isOther ? 'bad_signature' : 'invalid_token');
    });

    it('refuses a changed token', async () => {
      const sent = await sign();
      const [head, claims, signature] = tokenOf(sent).split('.') as [string, string, string];
      const other = Buffer.from('{"jti":"x"}').toString('base64url');
      const flipped = `${signature.startsWith('A') ? 'B' : 'A'}${signature.slice(1)}`;

      for (const [token, code] of [
        [`${head}.${other}.${signature}`, 'bad_signature'],
        [`${head}.${claims}.${flipped}`, 'bad_signature'],
        [`${head}.${claims}.${signature}=`, /invalid_token|bad_signature|malformed/],
        [`${head}.${claims}`, 'invalid_token'],
        [`${head}.${claims}.`, 'invalid_token'],
      ] as const) {
        const { status, headers } = await deliver({
          ...sent,
          headers: { ...sent.headers, ...withToken(token) },
        });
        expect(status).toBe(401);
        expect(headers['webhook-error']).toMatch(code);
      }
      expect(handlers.seen).toEqual([]);
    });

    it('refuses old and future tokens', async () => {
      const old = scheme.ages
        ? { iat: seconds() - 361 }
        : { iat: seconds() - 400, exp: seconds() - 61 };

      await expectRefused(await forge(old), 'token_expired');
      await expectRefused(await forge({ iat: seconds() + 62 }), 'token_not_yet_valid');
      await expectRefused(await forge({ nbf: seconds() + 62 }), 'token_not_yet_valid');
      await expectRefused(await forge({ exp: seconds() + 200_000 }), 'token_too_old');
      await expectRefused(await forge({ exp: seconds() * 1_000 }), 'invalid_claim');
    });

    it('accepts a token until the tolerance of 60 s has passed, and not at its end', async () => {
      const end = (now: number): Record<string, number> =>
        scheme.ages ? { iat: now - 360 } : { iat: now - 400, exp: now - 60 };
      const now = clock.now() / 1_000;

      await expectRefused(await forge(end(now)), 'token_expired');
      expect((await deliver(await forge(end(now + 0.001)))).status).toBe(200);
    });

    it('refuses a body that ends after its token has expired', async () => {
      const own = new TestClock(clock.now());
      const verifier = verifierFor({ sender: scheme.receive() }, own);
      const end = scheme.ages ? { iat: seconds() - 300 } : { exp: seconds() };
      const verify = async (ms: number): Promise<unknown> => {
        const { headers, body } = await forge(end);
        const request = { headers, body: slowBody(Buffer.from(body as string), own, ms) };
        return verifier.verify({ method: 'POST', ...request });
      };

      await expect(verify(59_000)).resolves.toMatchObject({ event });
      await expect(verify(2_000)).rejects.toMatchObject({ code: 'token_expired' });
    });

    it('refuses a token without a time', async () => {
      const claim = scheme.ages ? 'iat' : 'exp';

      await expectRefused(await forge({ [claim]: undefined }), 'missing_claim');
    });

    it('refuses tokens for others', async () => {
      const { iss, aud, sub, email, appid } = scheme.claims;
      await expectRefused(await forge({ aud: 'another' }), 'wrong_audience');
      if (aud !== undefined) await expectRefused(await forge({ aud: undefined }), 'wrong_audience');
      if (iss !== undefined) {
        await expectRefused(await forge({ iss: `${iss as string}x` }), 'wrong_issuer');
        await expectRefused(await forge({ iss: undefined }), 'wrong_issuer');
      }
      for (const [claim, value] of Object.entries({ sub, email, appid })) {
        if (value === undefined) continue;
        await expectRefused(await forge({ [claim]: 'x@example.com' }), 'invalid_claim');
        await expectRefused(await forge({ [claim]: undefined }), 'missing_claim');
      }
      if (email !== undefined) {
        await expectRefused(await forge({ email_verified: false }), 'invalid_claim');
      }
    });

    it('refuses another body, if the token covers it', async () => {
      if (digest === undefined) return;
      const { headers, body } = await sign();

      await expectRefused({ headers, body: `${body.toString()} ` }, 'hash_mismatch', 400);
      await expectRefused({ headers, body: '' }, 'hash_mismatch', 400);
      await expectRefused(await forge({ [digest.claim]: undefined }), 'hash_required', 400);
      await expectRefused(await forge({ [digest.claim]: '' }), 'hash_mismatch', 400);
      await expectRefused(await forge({ [digest.claim]: 7 }), 'hash_mismatch', 400);
      // As many characters as a digest, but more bytes.
      const { length } = createHash('sha256').update(body).digest(digest.encoding);
      const foreign = 'é'.repeat(length - (digest.encoding === 'base64' ? 1 : 0));
      await expectRefused(await forge({ [digest.claim]: foreign }), 'hash_mismatch', 400);
    });

    it('accepts the padding of a digest', async () => {
      if (digest === undefined || digest.encoding === 'hex') return;
      const { body } = await sign();
      const sum = createHash('sha256').update(body).digest(digest.encoding).replace(/=+$/, '');
      const padded = await forge({ [digest.claim]: `${sum}=` });

      expect((await deliver({ ...padded, body })).status).toBe(200);
    });

    it('refuses a repeated or missing token', async () => {
      const { headers, body } = await sign();
      const value = headers[header] as string;
      const { [header]: _token, ...others } = headers;

      await expectRefused({ headers: others, body }, 'missing_token');
      await expectRefused(
        { headers: { ...headers, [header]: [value, value] }, body },
        'malformed_authorization',
        400,
      );
    });

    it('acknowledges a replay without handling it again', async () => {
      const request = await sign();
      const answers = [await deliver(request), await deliver(request)];

      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
      expect(answers[1]!.headers['webhook-duplicate']).toBe('true');
      expect(handlers.seen).toHaveLength(1);
    });

    it('does not accept a captured token for another event', async () => {
      if (!scheme.singleUse) return;
      const first = await sign();
      const second = await sign();
      await deliver(first);
      const headers = { ...second.headers, [header]: first.headers[header]! };
      const body = digest === undefined ? second.body : first.body;
      const { status, headers: got } = await deliver({ headers, body });

      // Of Plaid and jwtSender, the second request is a plain copy.
      const isCopy = digest !== undefined && name !== 'qstash';
      expect([status, got['webhook-error']]).toEqual(isCopy ? [200, undefined] : [401, 'replayed']);
      expect(handlers.seen).toHaveLength(1);
    });

    it('recognises an event that its sender repeats with a new token', async () => {
      const id = `e-${nextNumber()}`;
      const repeated = async (): Promise<Answer> =>
        deliver(await sender.sign({ event, data: { ...data, id }, now: clock.now(), id }));
      const answers = [await repeated(), await repeated()];

      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
      // The two tokens of Plaid have the same claims here, too.
      expect(handlers.seen).toHaveLength(1);
    });

    it('refuses a token before it reads the body', async () => {
      const { headers } = await forge({ aud: 'another' });
      const lines = Object.entries(headers).map(([key, value]) => `${key}: ${value as string}`);
      const connection = await RawConnection.open(receiver.port);
      const answer = connection
        .write([`POST /${pathOf(name)} HTTP/1.1`, 'Host: receiver.example', 'Connection: close'])
        .write(['Content-Length: 5000', ...lines, '', '']);
      // No byte of the body follows.
      const text = await answer.rest();
      connection.destroy();

      expect(text).toContain('wrong_audience');
    });

    it('rejects a body that ends too early', async () => {
      const request = await sign();
      await sendTruncated(receiver.port, `/${pathOf(name)}`, request);

      expect(handlers.seen).toEqual([]);
      expect((await deliver(request)).status).toBe(200);
    });

    it('rejects other methods, content encodings and too many bytes', async () => {
      const { headers, body } = await sign();
      const path = `/${pathOf(name)}`;
      const answers = [
        await send(receiver.origin, { path, method: 'HEAD', headers }),
        await deliver({ headers: { ...headers, 'content-encoding': 'gzip' }, body }),
        await deliver({ headers, body: Buffer.alloc(10_001) }),
      ];

      expect(answers.map(({ status }) => status)).toEqual([405, 415, 413]);
      expect(handlers.seen).toEqual([]);
    });

    it('does not log a forged request as a warning', async () => {
      const warned = (): string[] => ['warn', 'error'].flatMap((one) => receiver.logger.at(one));
      const before = warned();
      await deliver({ headers: withToken('a.b.c'), body: '{}' });
      await deliver(await forge({}, { alg: 'none', key: '' }));

      expect(warned()).toEqual(before);
    });

    it('does not print its keys', () => {
      const printed = `${inspect(sender, { depth: 9 })}${JSON.stringify(sender)}`;

      expect(printed).not.toMatch(/sig_|"d"|PRIVATE/);
    });
  });

  it('takes either encoding of an ECDSA signature for the same token', async () => {
    const { sender, event, data } = SCHEMES['plaid']!;
    const { headers, body } = await sender.sign({
      event,
      data: { ...data, n: 1 },
      now: clock.now(),
    });
    const [head, claims, signature] = headers['plaid-verification']!.split('.');
    const bytes = Buffer.from(signature!, 'base64url');
    const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
    const s = order - BigInt(`0x${bytes.subarray(32).toString('hex')}`);
    const twin = Buffer.concat([
      bytes.subarray(0, 32),
      Buffer.from(s.toString(16).padStart(64, '0'), 'hex'),
    ]);
    const changed = {
      ...headers,
      'plaid-verification': `${head}.${claims}.${twin.toString('base64url')}`,
    };
    const answers = [
      await send(receiver.origin, { path: '/plaid', headers, body }),
      await send(receiver.origin, { path: '/plaid', headers: changed, body }),
    ];

    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(handlers.seen).toHaveLength(1);
  });

  describe('Event Grid', () => {
    const { sender, event, data } = SCHEMES['eventGrid']!;
    const post = async (headers: Record<string, string>, body: unknown): Promise<Answer> => {
      const signed = await sender.sign({ event, data, now: clock.now() });
      return send(receiver.origin, {
        path: '/eventGrid',
        headers: { ...signed.headers, ...headers },
        body: JSON.stringify(body),
      });
    };

    it('gets an answer to its validation, with 200 and the code alone', async () => {
      const validation = [
        {
          id: 'v1',
          eventType: 'Microsoft.EventGrid.SubscriptionValidationEvent',
          data: { validationCode: '512d38b6', validationUrl: 'https://grid.example' },
        },
      ];
      const headers = { 'aeg-event-type': 'SubscriptionValidation' };
      const answer = await post(headers, validation);
      const unsigned = await post({ ...headers, authorization: 'Bearer a.b.c' }, validation);

      expect(answer).toMatchObject({ status: 200, json: { validationResponse: '512d38b6' } });
      expect(unsigned.status).toBe(401);
      expect(handlers.seen).toEqual([]);
    });

    it('gets an answer to the OPTIONS of CloudEvents', async () => {
      const options = (origin: string): Promise<Answer> =>
        send(receiver.origin, {
          method: 'OPTIONS',
          path: '/eventGrid',
          headers: { 'webhook-request-origin': origin },
        });
      const answer = await options('eventgrid.azure.net');
      const odd = await options('<script>');

      expect(answer.status).toBe(200);
      expect(answer.headers).toMatchObject({
        'webhook-allowed-origin': 'eventgrid.azure.net',
        'webhook-allowed-rate': '*',
        allow: 'POST',
      });
      expect(odd.status).toBe(405);
      expect(odd.headers['webhook-allowed-origin']).toBeUndefined();
    });

    it('sends several events, and single ones of CloudEvents', async () => {
      const one = (id: string, topic: string) => ({ id, topic, eventType: 'a.made', data: { id } });
      const batch = await post({}, [one('1', 'x'), one('2', 'x'), one('1', 'y'), one('1', 'x')]);
      const cloud = await post(
        { 'content-type': 'application/cloudevents+json; charset=utf-8' },
        { specversion: '1.0', id: '3', source: 'x', type: 'b.made', data: {} },
      );

      expect([batch.status, cloud.status]).toEqual([200, 200]);
      // Another topic may use the same id.
      expect(handlers.seen.map(({ event: name }) => name)).toEqual([
        'a.made',
        'a.made',
        'a.made',
        'b.made',
      ]);
    });
  });

  it.each<[string, unknown, string]>([
    ['an attribute', { message: { messageId: '1', attributes: { eventType: 'a.b' } } }, 'a.b'],
    ['none', { message: { messageId: '2', data: 'bm90IEpTT04=' } }, 'message'],
    [
      'an attribute that is no name',
      { message: { messageId: '3', attributes: { eventType: 'a b' } } },
      'message',
    ],
  ])('names a message of Pub/Sub after %s', async (_case, body, event) => {
    const { sender } = SCHEMES['googlePush']!;
    const { headers } = await sender.sign({ event: 'message', data: {}, now: clock.now() });
    await send(receiver.origin, { path: '/googlePush', headers, body: JSON.stringify(body) });

    expect(handlers.seen[0]).toMatchObject({ event, data: { message: {} } });
  });

  it.each<[string, string | Buffer, unknown]>([
    ['JSON is parsed', '{"a":1}', { a: 1 }],
    ['a string that is not JSON stays base64', 'plain', Buffer.from('plain').toString('base64')],
    ['a JSON string that is not UTF-8 stays base64', Buffer.from([0x22, 0xff, 0x22]), 'Iv8i'],
  ])('decodes the data of a message of Pub/Sub: %s', async (_case, bytes, data) => {
    const { sender } = SCHEMES['googlePush']!;
    const { headers } = await sender.sign({ event: 'message', data: {}, now: clock.now() });
    const message = { messageId: `m-${nextNumber()}`, data: Buffer.from(bytes).toString('base64') };
    const body = JSON.stringify({ message });
    await send(receiver.origin, { path: '/googlePush', headers, body });

    expect(handlers.seen[0]).toMatchObject({ data: { message: { data } } });
  });

  it.each([
    ['a member __proto__', '{"__proto__":{"admin":true}}'],
    ['1,000 levels', '['.repeat(1_000) + ']'.repeat(1_000)],
  ])('rejects data of a message of Pub/Sub with %s', async (_case, json) => {
    const { sender } = SCHEMES['googlePush']!;
    const { headers } = await sender.sign({ event: 'message', data: {}, now: clock.now() });
    const body = JSON.stringify({ message: { data: Buffer.from(json).toString('base64') } });
    const answer = await send(receiver.origin, { path: '/googlePush', headers, body });

    expect([answer.status, answer.headers['webhook-error']]).toEqual([400, 'invalid_payload']);
    expect(handlers.seen).toEqual([]);
  });

  it('handles messages of two subscriptions with one id, and each only once', async () => {
    const { sender } = SCHEMES['googlePush']!;
    const { headers } = await sender.sign({ event: 'message', data: {}, now: clock.now() });
    const message = { messageId: '2070443601311540', data: 'e30=' };
    for (const subscription of ['billing', 'search', 'billing']) {
      const body = JSON.stringify({
        subscription: `projects/p/subscriptions/${subscription}`,
        message,
      });
      await send(receiver.origin, { path: '/googlePush', headers, body });
    }

    expect(
      handlers.seen.map(({ data }) => (data as { subscription: string }).subscription),
    ).toEqual(['projects/p/subscriptions/billing', 'projects/p/subscriptions/search']);
  });

  it('handles tasks of two queues with one name, and each only once', async () => {
    const { sender } = SCHEMES['googlePush']!;
    const data = { n: nextNumber() };
    const signed = await sender.sign({ event: 'task', data, now: clock.now(), id: 'order-123' });
    for (const queue of ['emails', 'invoices', 'emails']) {
      const headers = { ...signed.headers, 'x-cloudtasks-queuename': queue };
      await send(receiver.origin, { path: '/googlePush', ...signed, headers });
    }

    expect(handlers.seen.map(({ event }) => event)).toEqual(['task', 'task']);
  });

  it('handles a task whose name is longer than an id, and only once', async () => {
    const { sender } = SCHEMES['googlePush']!;
    const data = { n: nextNumber() };
    const name = 't'.repeat(500);
    const signed = await sender.sign({ event: 'task', data, now: clock.now(), id: 'short' });
    for (const suffix of ['a', 'b', 'a']) {
      const headers = { ...signed.headers, 'x-cloudtasks-taskname': `${name.slice(1)}${suffix}` };
      await send(receiver.origin, { path: '/googlePush', ...signed, headers });
    }

    expect(handlers.seen).toHaveLength(2);
  });

  it('hands a task over as it is if its body looks like a message of Pub/Sub', async () => {
    const { sender } = SCHEMES['googlePush']!;
    const data = { message: { messageId: '1', data: 'e30=', attributes: { eventType: 'a.b' } } };
    const signed = await sender.sign({ event: 'task', data, now: clock.now(), id: 't-message' });
    await send(receiver.origin, { path: '/googlePush', ...signed });

    expect(handlers.seen[0]).toMatchObject({ event: 'task', id: 't-message', data });
  });

  it('names a task of Cloud Tasks', async () => {
    const { sender } = SCHEMES['googlePush']!;
    const signed = await sender.sign({
      event: 'task',
      data: { n: 1 },
      now: clock.now(),
      id: 't-1',
    });
    await send(receiver.origin, { path: '/googlePush', ...signed });

    expect(handlers.seen[0]).toMatchObject({ event: 'task', id: 't-1', data: { n: 1 } });
  });

  it.each<[unknown, string]>([
    [{ task: { id: 't', status: { state: 'TASK_STATE_COMPLETED' } } }, 'task.completed'],
    [{ artifactUpdate: { taskId: 't', artifact: {} } }, 'task.artifact'],
    [{ message: { messageId: 'm', parts: [] } }, 'message'],
    [{ kind: 'task', id: 't', status: { state: 'input-required' } }, 'task.input-required'],
    [{ kind: 'status-update', taskId: 't', status: { state: 'working' } }, 'task.working'],
    [{ kind: 'artifact-update', taskId: 't', artifact: {} }, 'task.artifact'],
  ])('names %j of an agent', async (body, event) => {
    const { sender } = SCHEMES['a2a']!;
    const signed = await sender.sign({ event, data: body, now: clock.now() });
    await send(receiver.origin, { path: '/a2a', ...signed });

    expect(handlers.seen[0]).toMatchObject({ event, data: body });
  });
});

describe('the keys that Plaid is asked for', () => {
  const signer = SCHEMES['plaid']!.sender;
  let calls: string[];
  let answer: () => PlaidKey | undefined | Promise<PlaidKey>;
  let receiver: StartedApp;
  beforeEach(async () => {
    calls = [];
    answer = () => plaidKey;
    const key = async (kid: string): Promise<PlaidKey | undefined> => {
      calls.push(kid);
      return answer();
    };
    receiver = await startApp(adapters[0]![1](), {
      options: { receiver: { path: 'plaid', sender: plaid({ key }) }, clock },
      providers: [ReceivedEvents],
    });
  });
  afterEach(() => receiver.app.close());

  const deliver = async (kid = 'k1'): Promise<unknown> => {
    const data = { n: nextNumber() };
    const { headers, body } = await signer.sign({ event: 'ITEM.ERROR', data, now: clock.now() });
    const [, claims, signature] = headers['plaid-verification']!.split('.');
    const head = Buffer.from(JSON.stringify({ alg: 'ES256', typ: 'JWT', kid })).toString(
      'base64url',
    );
    const token = `${head}.${claims}.${signature}`;
    const sent = { ...headers, ...(kid !== 'k1' && { 'plaid-verification': token }) };
    const got = await send(receiver.origin, { path: '/plaid', headers: sent, body });
    return got.headers['webhook-error'] ?? got.status;
  };

  it('are asked for once', async () => {
    expect([await deliver(), await deliver()]).toEqual([200, 200]);
    expect(calls).toEqual(['k1']);
  });

  it('are not used after they have expired', async () => {
    answer = () => ({ ...plaidKey, expired_at: seconds() });

    expect(await deliver()).toBe('unknown_key');
  });

  it.each<[string, () => PlaidKey]>([
    [
      'fails',
      () => {
        throw new Error('client secret: hush');
      },
    ],
    ['returns no key', () => ({ kty: 'EC', crv: 'P-256', x: 'AA', y: 'AA' })],
  ])('are asked for again if Plaid %s', async (_case, wrong) => {
    answer = wrong;
    const failed = await deliver();
    answer = () => plaidKey;

    expect([failed, await deliver()]).toEqual(['keys_unavailable', 200]);
    expect(receiver.logger.at('warn').join()).not.toContain('hush');
  });

  describe('at times of the machine', () => {
    const start = Date.now();
    let minutes = 0;
    beforeEach(() => {
      minutes = 0;
      jest.spyOn(Date, 'now').mockImplementation(() => start + minutes * 60_000);
    });
    afterEach(() => void jest.restoreAllMocks());

    it('are kept whatever a stranger names, and asked for again beside those names', async () => {
      answer = () => (calls.at(-1) === 'k1' ? plaidKey : undefined);
      const codes = [await deliver()];
      for (; minutes < 4; minutes++) {
        for (let n = 0; n < 31; n++) await deliver(`x${minutes}-${n}`);
      }
      codes.push(await deliver());
      const kept = calls.filter((kid) => kid === 'k1').length;
      minutes = 11;
      for (let n = 0; n < 31; n++) await deliver(`y${n}`);
      codes.push(await deliver());

      expect(codes).toEqual([200, 200, 200]);
      expect(kept).toBe(1);
      expect(calls.filter((kid) => kid === 'k1')).toHaveLength(2);
    });

    it('are asked for 60 times a minute at most, whatever a stranger names, with a warning', async () => {
      const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
      answer = () => undefined;
      const codes: unknown[] = [];
      for (let n = 0; n < 300; n++) codes.push(await deliver(`x${n}`));
      const asked = calls.length;
      const warned = warn.mock.calls.length;
      minutes = 1;
      for (let n = 0; n < 60; n++) await deliver(`y${n}`);

      expect(new Set(codes.slice(0, 30))).toEqual(new Set(['unknown_key']));
      expect([asked, codes.at(-1)]).toEqual([60, 'keys_unavailable']);
      expect(warned).toBe(1);
      const warning = expect.stringMatching(/^plaid: requests name too many (?!.*\b[xy]\d)/);
      const call = [warning, { code: 'WEBHOOK_KEYS' }];
      expect(warn.mock.calls).toEqual([call, call]);
    });

    it('are seldom asked for at the start of a minute after one in which a stranger named 600', async () => {
      jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
      answer = () => undefined;
      for (let n = 0; n < 600; n++) await deliver(`x${n}`);
      const before = calls.length;
      minutes = 1;
      for (let n = 0; n < 30; n++) await deliver(`y${n}`);

      // Each with a chance of 1 in 20.
      expect(calls.length - before).toBeLessThan(20);
    });

    it('are found if they are new, after some retries, while a stranger names 100 others a minute', async () => {
      jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
      answer = () => (calls.at(-1) === 'k1' ? plaidKey : undefined);
      let code: unknown;
      for (; minutes < 6 && code !== 200; minutes++) {
        for (let n = 0; n < 100; n++) await deliver(`x${minutes}-${n}`);
        for (let n = 0; n < 10 && code !== 200; n++) code = await deliver();
      }

      expect(code).toBe(200);
    });

    it('are remembered as unknown for the last 100 names only, so that invented ones fill no memory', async () => {
      answer = () => undefined;
      for (; minutes < 4; minutes++) {
        for (let n = 0; n < 30; n++) await deliver(`x${minutes}-${n}`);
      }
      for (const kid of ['x3-29', 'x0-0']) await deliver(kid);

      expect(calls).toHaveLength(121);
      expect(calls.at(-1)).toBe('x0-0');
    });

    it('are forgotten if Plaid has them no longer', async () => {
      const codes = [await deliver()];
      minutes = 11;
      answer = () => undefined;
      codes.push(await deliver(), await deliver());

      expect(codes).toEqual([200, 'unknown_key', 'unknown_key']);
      expect(calls).toEqual(['k1', 'k1']);
    });

    it('are asked for again after a clock that was a day ahead was set back', async () => {
      minutes = 1_440;
      const codes = [await deliver()];
      minutes = 0;
      answer = () => undefined;
      codes.push(await deliver());

      expect(codes).toEqual([200, 'unknown_key']);
    });

    it('are asked for again if Plaid does not answer within 10 s', async () => {
      const waits: (() => void)[] = [];
      const { setTimeout: startTimer } = globalThis;
      jest.spyOn(globalThis, 'setTimeout').mockImplementation((end: () => void, ms?: number) => {
        if (ms === 10_000) waits.push(end);
        return startTimer(end, ms);
      });
      answer = async () => new Promise<never>(() => undefined);
      const hung = deliver();
      while (calls.length === 0) await new Promise((turn) => setImmediate(turn));
      waits[0]!();
      const failed = await hung;
      answer = () => plaidKey;

      expect([failed, await deliver()]).toEqual(['keys_unavailable', 200]);
      expect(calls).toEqual(['k1', 'k1']);
    });
  });
});

describe('a request of jwtSender with several events', () => {
  const list = [
    { type: 'a.made', id: '1' },
    { type: 'a.made', id: '2' },
    { type: 'b.made', id: '3' },
  ];
  type Item = { type?: string; id?: string; list?: Item[] };
  const batch = (more: object): WebhookSender =>
    jwtSender({
      name: 'acme',
      issuer: 'https://acme.example',
      signingKey,
      event: ({ data }) => (data as Item).type ?? (data as Item).list?.[0]?.type ?? '',
      events: ({ data }) => (data as Item).list ?? [],
      ...more,
    });
  const digest = { claim: 'sum' };
  const id = ({ data }: { data: unknown }): string | undefined => (data as Item).id;

  it.each<[string, object, boolean]>([
    ['a token with a digest', { digest }, false],
    ['a token with a digest, and ids', { digest, id }, true],
    ['ids', { id }, true],
    ['neither', {}, true],
  ])('handles each once, with %s', async (_case, more, isRepeatedByNewTokens) => {
    const sender = batch(more);
    const receiver = await startApp(adapters[0]![1](), {
      options: { receiver: { path: 'in', sender }, clock },
      providers: [ReceivedEvents],
    });
    const { seen } = receiver.app.get(ReceivedEvents);
    const message = { event: 'a.made', data: { list }, now: clock.now() };
    const signed = await sender.sign({ ...message, id: 'request-1' });
    const again = await sender.sign({ ...message, id: 'request-2' });
    const post = async ({ headers, body }: typeof signed): Promise<unknown> =>
      (await send(receiver.origin, { path: '/in', headers, body })).status;
    const answers = [await post(signed), await post(signed)];
    const handled = seen.map(({ data }) => (data as Item).id);
    if (isRepeatedByNewTokens) answers.push(await post(again));
    await receiver.app.close();

    expect(answers.every((status) => status === 200)).toBe(true);
    expect(handled).toEqual(['1', '2', '3']);
    expect(seen).toHaveLength(3);
  });
});

/** A receiver of the sender; `deliver` sends it a token with this header, and returns the status of the answer. */
async function startSender(adapter: AbstractHttpAdapter, sender: WebhookSender) {
  const { app, origin } = await startApp(adapter, {
    options: { receiver: { path: 'in', sender }, clock },
    providers: [ReceivedEvents],
  });
  const deliver = async (header: object, key: KeyObject | string): Promise<unknown> => {
    const claims = { exp: seconds() + 300, jti: `j-${nextNumber()}` };
    const headers = { authorization: `Bearer ${forgedJwt({ ...header }, claims, key)}` };
    return (await send(origin, { path: '/in', headers, body: '{}' })).status;
  };
  return { app, deliver };
}

it.each(adapters)(
  'accepts a secret beside a key set, whatever the kid, on %s',
  async (_, create) => {
    const set = await JwksServer.start([jwk]);
    const jwksFetch = { ca: JWKS_CA, allowPrivateNetworks: true };
    const sender = jwtSender({
      name: 'acme',
      secret: SECRET,
      jwksUri: set.uri,
      jwksFetch,
      event: () => 'a.b',
    });
    const { app, deliver } = await startSender(create(), sender);
    const bySecret = [
      await deliver({ alg: 'HS256' }, SECRET),
      await deliver({ alg: 'HS256', kid: '2025' }, SECRET),
      await deliver({ alg: 'HS256', kid: '2025' }, NEXT),
    ];
    const { hits } = set;
    const bySet = await deliver({ alg: 'RS256', kid: 'k1' }, rsa.privateKey);
    await app.close();
    await set.close();

    expect(bySecret).toEqual([200, 200, 401]);
    expect(hits).toBe(0);
    expect(bySet).toBe(200);
  },
);

describe.each(adapters)('a2a on %s', (_, create) => {
  const issuers = ['https://a.example', 'https://b.example'];
  let receiver: StartedApp;
  beforeAll(async () => {
    receiver = await startApp(create(), {
      options: { receiver: { path: 'a2a', sender: a2a({ issuer: issuers, keys }) }, clock },
      providers: [ReceivedEvents],
    });
  });
  afterAll(() => receiver.app.close());
  const deliver = async (claims: object): Promise<unknown> => {
    const token = forgedJwt(
      { alg: 'RS256', kid: 'k1' },
      { exp: seconds() + 300, ...claims },
      rsa.privateKey,
    );
    const headers = { authorization: `Bearer ${token}` };
    const body = JSON.stringify({ message: { n: nextNumber() } });
    const answer = await send(receiver.origin, { path: '/a2a', headers, body });
    return answer.headers['webhook-error'] ?? answer.status;
  };

  it('refuses a token without an id, which would admit any number of bodies', async () => {
    const [iss] = issuers;

    expect(await deliver({ iss })).toBe('missing_claim');
    expect(await deliver({ iss, jti: 7 })).toBe('invalid_claim');
    expect(receiver.app.get(ReceivedEvents).seen).toEqual([]);
  });

  it('keeps the ids of its agents apart', async () => {
    const outcomes: unknown[] = [];
    for (const iss of [...issuers, ...issuers]) outcomes.push(await deliver({ iss, jti: '1' }));

    expect(outcomes).toEqual([200, 200, 'replayed', 'replayed']);
    const { seen } = receiver.app.get(ReceivedEvents);
    expect(new Set(seen.map(({ id }) => id)).size).toBe(2);
  });

  it('handles each update of an agent that signs one txn for several', async () => {
    const [iss] = issuers;
    const outcomes: unknown[] = [];
    for (const jti of ['2', '3']) outcomes.push(await deliver({ iss, jti, txn: 'of-a-task' }));

    expect(outcomes).toEqual([200, 200]);
  });
});

it.each(adapters)(
  'asks for a key only if no other key has the algorithm of the token, on %s',
  async (_, create) => {
    const asked: string[] = [];
    const sender = jwtSender({
      name: 'acme',
      secret: SECRET,
      key: (kid) => {
        asked.push(kid);
        return { kid, alg: 'RS256', key: rsa.publicKey };
      },
      event: () => 'a.b',
    });
    const { app, deliver } = await startSender(create(), sender);
    const statuses = [
      await deliver({ alg: 'HS256', kid: '2025' }, SECRET),
      await deliver({ alg: 'HS256', kid: '2025' }, NEXT),
      await deliver({ alg: 'RS256', kid: 'k1' }, rsa.privateKey),
    ];
    await app.close();

    expect(statuses).toEqual([200, 401, 200]);
    expect(asked).toEqual(['k1']);
  },
);

it('requires the token of the notification configuration', async () => {
  const create = (notificationToken: string | string[] | undefined): WebhookSender =>
    a2a({ issuer: 'https://agent.example', signingKey, notificationToken });
  const receiver = await startApp(adapters[0]![1](), {
    options: { receiver: { path: 'a2a', sender: create(['old-token', 'new-token']) }, clock },
    providers: [ReceivedEvents],
  });
  const codes: unknown[] = [];
  for (const token of ['old-token', 'new-token', 'other-token', '']) {
    const event = 'task.working';
    const { headers, body } = await create('x').sign({ event, data: {}, now: clock.now() });
    const sent = { ...headers, 'x-a2a-notification-token': token };
    const answer = await send(receiver.origin, { path: '/a2a', headers: sent, body });
    codes.push(answer.headers['webhook-error'] ?? answer.status);
  }
  await receiver.app.close();

  expect(codes).toEqual([200, 200, 'invalid_claim', 'invalid_claim']);
  expect(() => create(undefined)).toThrow(
    'a2a.notificationToken: is undefined, which is almost always a bug; leave it out if the agents send none',
  );
});

describe('the options of a sender with a JWT', () => {
  const named = { name: 'acme', event: () => 'a.b' };

  it.each<[string, () => unknown, RegExp]>([
    ['no key', () => jwtSender(named), /secret: is undefined/],
    ['a weak secret', () => jwtSender({ ...named, secret: 'short' }), /jwtSender\.secret/],
    ['no signing key', () => qstash({ secret: '', url: 'https://a.example' }), /qstash\.secret/],
    [
      'http',
      () => jwtSender({ ...named, jwksUri: 'http://a.example' }),
      /jwtSender\.jwksUri.*https/,
    ],
    ['a private key', () => jwtSender({ ...named, keys: [signingKey] }), /must never have/],
    ['a misspelt option', () => a2a({ isuer: 'x', keys } as never), /did you mean "issuer"/],
    ['no account', () => google({ serviceAccount: undefined }), /serviceAccount: is undefined/],
    ['a name of a wire format', () => jwtSender({ ...named, name: 'webhook-token', keys }), /name/],
  ])('refuse %s', (_case, create, message) => {
    expect(create).toThrow(WebhookConfigurationError);
    expect(create).toThrow(message);
  });

  it('require the private key for a test', async () => {
    const sender = a2a({ issuer: 'https://agent.example', keys });

    await expect(sender.sign({ event: 'message', data: { message: {} }, now: 0 })).rejects.toThrow(
      /signingKey/,
    );
  });
});

function pathOf(name: string): string {
  return name.replace(/\W+/g, '-');
}

let number = 1_000_000;
/** So that every body differs. */
function nextNumber(): number {
  return (number += 2);
}
