import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { type CanActivate, ForbiddenException, HttpException, UseGuards } from '@nestjs/common';
import { SignJWT } from 'jose';
import { InProcessQueue, WebhookConfigurationError } from '../../lib/index.js';
import { securityEvents } from '../../lib/senders/index.js';
import { deliverWebhook, expectIdempotent, flushDeliveries } from '../../lib/testing/index.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { forgedJwt } from '../fixtures/forged-jwt.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import { sendTruncated } from '../fixtures/raw-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { slowBody } from '../fixtures/slow-body.js';
import { verifierFor } from '../fixtures/verifier-for.js';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const stranger = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const ISSUER = 'https://idp.example';
const AUDIENCE = 'https://shop.example';
const stream = { issuer: ISSUER, audience: AUDIENCE };
const signingKey = { kid: 'k1', alg: 'RS256', key: rsa.privateKey } as const;
const CAEP = 'https://schemas.openid.net/secevent/caep/event-type/session-revoked';

const clock = new TestClock(Date.parse('2026-11-24T10:00:00.400Z'));
const seconds = (): number => Math.floor(clock.now() / 1_000);

type Json = Record<string, unknown>;
type Forged = Json & { readonly key?: KeyObject | string };

describe.each(adapters)('a receiver of security events on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let handlers: ReceivedEvents;
  let jwks: JwksServer;
  beforeAll(async () => {
    jwks = await JwksServer.start([{ ...rsa.publicKey.export({ format: 'jwk' }), kid: 'k1' }]);
    const fetched = {
      ...stream,
      jwksUri: jwks.uri,
      jwksFetch: { ca: JWKS_CA, allowPrivateNetworks: true },
    };
    receiver = await startApp(createAdapter(), {
      options: {
        receiver: [
          { name: 'open', path: 'events', sender: securityEvents(fetched) },
          {
            name: 'closed',
            path: 'closed',
            sender: securityEvents({ ...fetched, authorization: ['Bearer old', 'Bearer new'] }),
          },
          {
            name: 'queued',
            path: 'queued',
            sender: securityEvents(fetched),
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
  beforeEach(() => handlers.clear());
  afterAll(async () => {
    await receiver.app.close();
    await jwks.close();
  });

  const push = (
    body: string,
    headers: Record<string, string | string[]> = {},
    path = '/events',
  ): Promise<Answer> =>
    send(receiver.origin, {
      path,
      headers: {
        'content-type': 'application/secevent+jwt',
        accept: 'application/json',
        ...headers,
      },
      body,
    });
  const claimsOf = (claims: Json = {}): Json => ({
    iss: ISSUER,
    aud: AUDIENCE,
    iat: seconds(),
    jti: `set-${nextNumber()}`,
    sub_id: { format: 'opaque', id: 'user-1' },
    events: { [CAEP]: { event_timestamp: 1_700_000_000, reason_admin: { en: 'policy' } } },
    ...claims,
  });
  const set = (claims: Json = {}, { key = rsa.privateKey, ...header }: Forged = {}): string =>
    forgedJwt({ alg: 'RS256', kid: 'k1', typ: 'secevent+jwt', ...header }, claimsOf(claims), key);

  it('accepts a token that jose has signed, with 202 and no body', async () => {
    const token = await new SignJWT(claimsOf({ jti: 'from-jose', txn: 'logout-1' }))
      .setProtectedHeader({ alg: 'RS256', kid: 'k1', typ: 'secevent+jwt' })
      .sign(rsa.privateKey);
    const answer = await push(token);
    const [seen] = handlers.seen;

    expect([answer.status, answer.text]).toEqual([202, '']);
    expect(seen).toMatchObject({
      event: 'session-revoked',
      // Several events may have one `txn`.
      id: 'from-jose',
      issuer: 'security-events',
      bodyVerified: true,
      data: {
        sub_id: { format: 'opaque', id: 'user-1' },
        event_timestamp: 1_700_000_000,
        reason_admin: { en: 'policy' },
      },
    });
    expect(seen!.claims['token']).toMatchObject({ iss: ISSUER, txn: 'logout-1' });
  });

  it.each([
    [CAEP, 'session-revoked'],
    ['https://schemas.openid.net/secevent/risc/event-type/account-disabled', 'account-disabled'],
    ['https://schemas.openid.net/secevent/ssf/event-type/verification', 'verification'],
    ['https://schemas.openid.net/secevent/oauth/event-type/token-revoked', 'token-revoked'],
    ['https://idp.example/events/mfa.reset', 'idp.example.events.mfa.reset'],
    ['https://other.example/secevent/caep/event-type/session-revoked', /^other\.example\./],
    [
      'https://schemas.openid.net/secevent/caep/event-type/session-revoked/x',
      /^schemas\.openid\.net\./,
    ],
    ['urn:example:single-logout', 'example.single-logout'],
  ])('names %s', async (uri, name) => {
    await push(set({ events: { [uri]: {} } }));

    expect(handlers.seen[0]!.event).toMatch(name);
  });

  it.each<[string, () => string, string]>([
    ['another key', () => set({}, { key: stranger.privateKey }), 'invalid_key'],
    ['another issuer', () => set({ iss: 'https://other.example' }), 'invalid_issuer'],
    ['no issuer', () => set({ iss: undefined }), 'invalid_issuer'],
    ['another audience', () => set({ aud: 'https://other.example' }), 'invalid_audience'],
    ['no audience', () => set({ aud: undefined }), 'invalid_audience'],
    ['a plain JWT', () => set({}, { typ: 'JWT' }), 'invalid_request'],
    ['no type', () => set({}, { typ: undefined }), 'invalid_request'],
    ['no algorithm', () => set({}, { alg: 'none', key: '' }), 'invalid_request'],
    [
      'HS256 with the public key as its secret',
      () => {
        const key = rsa.publicKey.export({ type: 'spki', format: 'pem' }) as string;
        return set({}, { alg: 'HS256', key });
      },
      'invalid_request',
    ],
    ['an expiry', () => set({ exp: seconds() + 300 }), 'invalid_request'],
    ['no id', () => set({ jti: undefined }), 'invalid_request'],
    ['no time', () => set({ iat: undefined }), 'invalid_request'],
    ['a time of last week', () => set({ iat: seconds() - 7 * 86_400 - 61 }), 'invalid_request'],
    ['no event', () => set({ events: {} }), 'invalid_request'],
    ['two events', () => set({ events: { [CAEP]: {}, 'urn:other': {} } }), 'invalid_request'],
    ['an event that is no object', () => set({ events: { [CAEP]: 'x' } }), 'invalid_request'],
    ['a list of events', () => set({ events: [CAEP] }), 'invalid_request'],
    ['JSON', () => JSON.stringify(claimsOf()), 'invalid_request'],
    ['a truncated token', () => set().slice(0, -9), 'invalid_key'],
    ['two tokens', () => `${set()}\n${set()}`, 'invalid_request'],
    ['nothing', () => '', 'invalid_request'],
    ['too many bytes', () => set({ x: 'x'.repeat(20_000) }), 'invalid_request'],
  ])('rejects a token with %s', async (_case, token, err) => {
    const answer = await push(token());

    expect([answer.status, (answer.json as Json)['err']]).toEqual([400, err]);
    expect(Object.keys(answer.json as Json)).toEqual(['err', 'description']);
    expect(answer.headers).toMatchObject({
      'content-type': 'application/json',
      'content-language': 'en',
      'cache-control': 'no-store',
    });
    expect(handlers.seen).toEqual([]);
  });

  it('lets the transmitter repeat an event whose key was published after the last fetch', async () => {
    const next = { ...rsa.publicKey.export({ format: 'jwk' }), kid: 'next' };
    const own = await JwksServer.start([{ ...next, kid: 'k1' }]);
    const sender = securityEvents({
      ...stream,
      jwksUri: own.uri,
      jwksFetch: { ca: JWKS_CA, allowPrivateNetworks: true, cooldown: 1 },
    });
    const patient = securityEvents({
      ...stream,
      jwksUri: own.uri,
      jwksFetch: { ca: JWKS_CA, allowPrivateNetworks: true },
    });
    const rotated = await startApp(createAdapter(), {
      options: {
        receiver: [
          { name: 'eager', path: 'eager', sender },
          { name: 'patient', path: 'patient', sender: patient },
        ],
        clock,
      },
      providers: [ReceivedEvents],
    });
    const deliver = async (path: string, kid: string): Promise<unknown> => {
      const { status, headers } = await send(rotated.origin, {
        path,
        headers: { 'content-type': 'application/secevent+jwt' },
        body: set({}, { kid }),
      });
      return [status, headers['webhook-error']];
    };
    const junk = [await deliver('/eager', 'junk'), await deliver('/patient', 'junk')];
    own.publish([next]);
    const answers = [await deliver('/eager', 'next'), await deliver('/patient', 'next')];
    await rotated.app.close();
    await own.close();

    expect(junk).toEqual([
      [401, 'unknown_key'],
      [401, 'unknown_key'],
    ]);
    expect(answers).toEqual([
      [202, undefined],
      [401, 'unknown_key'],
    ]);
  });

  it('rejects a body that ends too early, and other content encodings', async () => {
    const token = set();
    const headers = { 'content-type': 'application/secevent+jwt' };
    await sendTruncated(receiver.port, '/events', { headers, body: token });
    const { status, json } = await push(token, { 'content-encoding': 'gzip' });

    expect([status, (json as Json)['err']]).toEqual([400, 'invalid_request']);
    expect(handlers.seen).toEqual([]);
    expect((await push(token)).status).toBe(202);
  });

  it('rejects another content type before it reads the body', async () => {
    const answer = await push(set(), { 'content-type': 'application/json' });

    expect(answer).toMatchObject({ status: 400, json: { err: 'invalid_request' } });
  });

  it('requires the authorization of the stream', async () => {
    const codes: unknown[] = [];
    for (const authorization of ['Bearer old', 'Bearer new', 'Bearer other', '']) {
      const { status, json } = await push(set(), { authorization }, '/closed');
      codes.push(status === 202 ? status : (json as Json)['err']);
    }
    const without = await push(set(), {}, '/closed');
    const twice = await push(set(), { authorization: ['Bearer old', 'Bearer old'] }, '/closed');

    expect(twice.json).toMatchObject({ err: 'authentication_failed' });
    expect(codes).toEqual([202, 202, 'authentication_failed', 'authentication_failed']);
    expect(without.json).toMatchObject({ err: 'authentication_failed' });
  });

  it('acknowledges a replay without handling it again', async () => {
    const token = set();
    const answers = [await push(token), await push(token)];

    expect(answers.map(({ status }) => status)).toEqual([202, 202]);
    expect(handlers.seen).toHaveLength(1);
  });

  it('acknowledges a replay for as long as it accepts the token', async () => {
    const keys = [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }] as const;
    const sender = securityEvents({ ...stream, keys, maxAge: '1h', tolerance: '300s' });
    const replay = { window: '1s' };
    const other = await startApp(createAdapter(), {
      options: { receiver: { path: 'events', sender, clockTolerance: 0, replay }, clock },
      providers: [ReceivedEvents],
    });
    const token = set();
    const headers = { 'content-type': 'application/secevent+jwt' };
    const request = { path: '/events', headers, body: token };
    const first = await send(other.origin, request);
    await clock.advance(3_600_000 + 200_000);
    const replayed = await send(other.origin, request);
    await clock.advance(100_000);
    const late = await send(other.origin, request);

    expect([first, replayed, late].map(({ status }) => status)).toEqual([202, 202, 400]);
    expect(other.app.get(ReceivedEvents).seen).toHaveLength(1);
    await other.app.close();
  });

  it('rejects a token that has become too old while it arrived', async () => {
    const own = new TestClock(clock.now());
    const keys = [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }] as const;
    const verifier = verifierFor(
      { sender: securityEvents({ ...stream, keys, maxAge: '1h' }) },
      own,
    );
    const headers = { 'content-type': 'application/secevent+jwt' };
    const body = slowBody(Buffer.from(set()), own, 3_661_000);

    await expect(verifier.verify({ method: 'POST', headers, body })).rejects.toMatchObject({
      code: 'token_expired',
    });
  });

  it('rejects another event under a known id', async () => {
    await push(set({ jti: 'taken' }));
    const answer = await push(set({ jti: 'taken', events: { 'https://idp.example/other': {} } }));

    expect(answer).toMatchObject({ status: 400, json: { err: 'invalid_request' } });
    expect(handlers.seen).toHaveLength(1);
  });

  it('keeps the status of a failed handler, so that the transmitter repeats the event', async () => {
    handlers.fail('fails');
    handlers.failures.set('refused', new ForbiddenException('not ours'));
    const failed = await push(set({ jti: 'fails' }));
    const refused = await push(set({ jti: 'refused' }));

    expect(failed.status).toBe(500);
    expect(failed.headers['content-type']).toBe('application/problem+json');
    expect(refused.status).toBe(403);
  });

  it.each([
    [408, 408],
    [425, 425],
    [429, 429],
    [503, 503],
    [403, 400],
    [404, 400],
  ])('answers a guard that refuses with %i by %i', async (refused, expected) => {
    class Gate implements CanActivate {
      canActivate(): never {
        throw new HttpException('not now', refused);
      }
    }
    @UseGuards(Gate)
    class Guarded extends ReceivedEvents {}
    const keys = [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }] as const;
    const guarded = await startApp(createAdapter(), {
      options: { receiver: { path: 'in', sender: securityEvents({ ...stream, keys }) }, clock },
      providers: [Guarded],
    });
    const headers = { 'content-type': 'application/secevent+jwt' };
    const { status, json } = await send(guarded.origin, { path: '/in', headers, body: set() });
    await guarded.app.close();

    expect(status).toBe(expected);
    expect((json as Json)['err']).toBe(expected === 400 ? 'access_denied' : undefined);
  });

  it('lets the transmitter repeat an event whose time has not come', async () => {
    const token = set({ iat: seconds() + 62 });
    const early = await push(token);
    await clock.advance(2_000);
    const repeated = await push(token);

    expect([early.status, early.headers['webhook-error']]).toEqual([401, 'token_not_yet_valid']);
    expect(repeated.status).toBe(202);
  });

  it('lets the transmitter repeat a token that did not arrive whole', () => {
    const sender = securityEvents({ ...stream, signingKey });
    const headers = { get: () => undefined, all: () => [] };
    const body = { kind: 'consumed' } as const;
    const given = { status: 400, code: 'payload_incomplete', detail: undefined };

    expect(sender.answer!(given, { method: 'POST', headers, body })).toBeUndefined();
  });

  it('rejects other methods', async () => {
    const get = await send(receiver.origin, { method: 'GET', path: '/events' });

    expect(get.status).toBe(405);
  });

  it('queues an event with its data', async () => {
    const answer = await push(set({ jti: 'queued' }), {}, '/queued');
    await flushDeliveries(receiver.app);

    expect(answer.status).toBe(202);
    expect(handlers.seen[0]).toMatchObject({
      event: 'session-revoked',
      id: 'queued',
      data: { sub_id: { id: 'user-1' } },
    });
  });

  const sender = securityEvents({ ...stream, signingKey });

  it.each(['session-revoked', 'account-purged', 'verification'])(
    'delivers the test event %s',
    async (event) => {
      const data = { sub_id: { format: 'opaque', id: 's1' }, state: 'x' };
      const options = { receiver: 'open', sender };
      const answer = await deliverWebhook(receiver.app, event, data as never, options);

      expect(answer).toMatchObject({ status: 202, outcome: 'handled' });
      expect(handlers.seen[0]).toMatchObject({ event, data });
    },
  );

  it('can be checked for idempotent handlers', async () => {
    const data = { sub_id: { format: 'opaque', id: 's2' } };
    const subjects = (): unknown[] => {
      const all = handlers.seen.map((one) => (one.data as typeof data).sub_id.id);
      return [...new Set(all)];
    };
    await expectIdempotent(receiver.app, 'session-revoked', data as never, {
      receiver: 'open',
      sender,
      observe: subjects,
    });
  });
});

it.each<[string, () => unknown, RegExp]>([
  ['no audience', () => securityEvents({ issuer: ISSUER, signingKey } as never), /audience/],
  ['no keys', () => securityEvents(stream), /jwksUri/],
  [
    'several issuers',
    () => securityEvents({ ...stream, issuer: [] as never, signingKey }),
    /issuer/,
  ],
])('refuses %s', (_, create, message) => {
  expect(create).toThrow(WebhookConfigurationError);
  expect(create).toThrow(message);
});

it('signs no test of an event whose URI it does not know', async () => {
  const sender = securityEvents({ ...stream, signingKey });

  await expect(sender.sign({ event: 'idp.example.x', data: {}, now: 0 })).rejects.toThrow(/URI/);
});

let number = 0;
function nextNumber(): number {
  return ++number;
}
