import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import {
  type CanActivate,
  type ExecutionContext,
  HttpException,
  UnprocessableEntityException,
  UseGuards,
} from '@nestjs/common';
import {
  InProcessQueue,
  MemoryReplayStore,
  WebhookConfigurationError,
  WebhookInbox,
  type WebhookReceiverOptions,
} from 'nestjs-webhook-token';
import { securityEvents } from 'nestjs-webhook-token/senders';
import type { JwtKeyOptions } from '../../lib/senders/jwt-keys.js';
import type { PollOptions } from '../../lib/senders/security-events.js';
import { flushDeliveries, TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { EventTransmitter, type Poll } from '../fixtures/event-transmitter.js';
import { forgedJwt } from '../fixtures/forged-jwt.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import { send } from '../fixtures/http-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const stranger = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const ISSUER = 'https://idp.example';
const AUDIENCE = 'https://shop.example';
const CAEP = 'https://schemas.openid.net/secevent/caep/event-type/session-revoked';

type Json = Record<string, unknown>;

describe.each(adapters)('a receiver that polls security events on %s', (_, createAdapter) => {
  let transmitter: EventTransmitter;
  let clock: TestClock;
  const started: StartedApp[] = [];

  beforeEach(async () => {
    clock = new TestClock(Date.parse('2026-11-24T10:00:00.400Z'));
    transmitter = await EventTransmitter.start();
  });
  afterEach(async () => {
    // First the transmitter, which would hold the last report of each receiver.
    await transmitter.close();
    await Promise.all(started.splice(0).map(({ app }) => app.close()));
  });

  const seconds = (): number => Math.floor(clock.now() / 1_000);
  const set = (
    jti: string,
    claims: Json = {},
    { key = rsa.privateKey, ...header }: Json & { key?: KeyObject | string } = {},
  ): string =>
    forgedJwt(
      { alg: 'RS256', kid: 'k1', typ: 'secevent+jwt', ...header },
      {
        iss: ISSUER,
        aud: AUDIENCE,
        iat: seconds(),
        jti,
        sub_id: { format: 'opaque', id: 'user-1' },
        events: { [CAEP]: { reason_admin: { en: 'policy' } } },
        ...claims,
      },
      key,
    );
  const start = async (
    poll: Partial<PollOptions> = {},
    receiver: Partial<WebhookReceiverOptions> = {},
    authorization?: string,
    handlers = ReceivedEvents,
    keys: JwtKeyOptions = { keys: [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }] },
  ): Promise<StartedApp & { handlers: ReceivedEvents }> => {
    const app = await startApp(createAdapter(), {
      options: {
        receiver: {
          name: 'idp',
          sender: securityEvents({
            issuer: ISSUER,
            audience: AUDIENCE,
            ...keys,
            authorization,
            poll: { url: transmitter.url, allowHttp: true, allowPrivateNetworks: true, ...poll },
          }),
          ...receiver,
        },
        clock,
      },
      providers: [handlers],
    });
    started.push(app);
    return { ...app, handlers: app.app.get(handlers) };
  };

  const nextAfterPause = async (): Promise<Poll> => {
    const { polls } = transmitter;
    while (transmitter.polls === polls) await clock.advance(100);
    return transmitter.next();
  };

  it('handles fetched events, and acknowledges them with the next request', async () => {
    const { handlers } = await start({ authorization: 'Bearer access' }, {}, 'Bearer push');
    const first = await transmitter.next();
    first.answer({ a: set('a'), b: set('b') });
    const second = await transmitter.next();

    expect(first.headers).toMatchObject({
      ':method': 'POST',
      ':path': '/poll?stream=s1',
      'content-type': 'application/json',
      accept: 'application/json',
      authorization: 'Bearer access',
    });
    expect(first.body).toEqual({ maxEvents: 25, returnImmediately: false });
    expect(second.body).toEqual({ maxEvents: 25, returnImmediately: false, ack: ['a', 'b'] });
    expect(handlers.ids).toEqual(['a', 'b']);
    expect(handlers.seen[0]).toMatchObject({
      event: 'session-revoked',
      issuer: 'security-events',
      receiver: 'idp',
      bodyVerified: true,
      data: { sub_id: { id: 'user-1' }, reason_admin: { en: 'policy' } },
    });
  });

  it('acknowledges an event only after its handler has ended', async () => {
    const { handlers } = await start();
    handlers.fail('a');
    (await transmitter.next()).answer({ a: set('a'), b: set('b') });
    await clock.advance(5_000);
    const second = await transmitter.next();
    handlers.failures.clear();
    second.answer({ a: set('a') });
    const third = await transmitter.next();

    expect(second.body['ack']).toEqual(['b']);
    expect(third.body['ack']).toEqual(['a']);
    expect(handlers.ids).toEqual(['a', 'b', 'a']);
  });

  it('waits longer and longer while no event can be handled', async () => {
    const { handlers } = await start();
    handlers.fail('a');
    let poll = await transmitter.next();
    const early: number[] = [];
    for (const [round, wait] of [1, 2, 4, 8, 16, 32, 60, 60].entries()) {
      poll.answer({ a: set('a') });
      while (handlers.ids.length <= round) await turn();
      for (let turns = 0; turns < 50; turns++) await turn();
      // The jitter takes away a fifth at most.
      await clock.advance(wait * 800 - 1);
      early.push(transmitter.polls - round - 1);
      await clock.advance(wait * 200 + 1);
      poll = await transmitter.next();
    }

    expect(early).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
    expect(handlers.ids).toHaveLength(8);
  });

  it('acknowledges a duplicate without handling it again', async () => {
    const { handlers } = await start();
    (await transmitter.next()).answer({ a: set('a') });
    (await transmitter.next()).answer({ a: set('a') });
    const third = await nextAfterPause();

    expect(third.body['ack']).toEqual(['a']);
    expect(handlers.ids).toEqual(['a']);
  });

  it('handles an event once that two processes fetch', async () => {
    const store = new MemoryReplayStore({ clock });
    const one = await start({}, { replay: { store } });
    const first = await transmitter.next();
    const two = await start({}, { replay: { store } });
    const second = await transmitter.next();
    first.answer({ a: set('a') });
    const third = await transmitter.next();
    second.answer({ a: set('a') });
    const fourth = await nextAfterPause();

    expect([third, fourth].map(({ body }) => body['ack'])).toEqual([['a'], ['a']]);
    expect([...one.handlers.ids, ...two.handlers.ids]).toEqual(['a']);
  });

  it.each<[string, (jti: string) => unknown, string]>([
    ['another key', (jti) => set(jti, {}, { key: stranger.privateKey }), 'invalid_key'],
    ['an unknown key', (jti) => set(jti, {}, { kid: 'k2' }), 'invalid_key'],
    ['another issuer', (jti) => set(jti, { iss: 'https://x.example' }), 'invalid_issuer'],
    ['another audience', (jti) => set(jti, { aud: 'https://x.example' }), 'invalid_audience'],
    ['no algorithm', (jti) => set(jti, {}, { alg: 'none', key: '' }), 'invalid_request'],
    [
      'HS256 with the public key as its secret',
      (jti) => {
        const key = rsa.publicKey.export({ type: 'spki', format: 'pem' }) as string;
        return set(jti, {}, { alg: 'HS256', key });
      },
      'invalid_request',
    ],
    ['a plain JWT', (jti) => set(jti, {}, { typ: 'JWT' }), 'invalid_request'],
    ['an expiry', (jti) => set(jti, { exp: seconds() + 60 }), 'invalid_request'],
    ['an old time', (jti) => set(jti, { iat: seconds() - 7 * 86_400 - 61 }), 'invalid_request'],
    ['two events', (jti) => set(jti, { events: { [CAEP]: {}, 'urn:x': {} } }), 'invalid_request'],
    ['a changed claim', (jti) => changed(set(jti)), 'invalid_key'],
    ['a truncated token', (jti) => set(jti).slice(0, -9), 'invalid_key'],
    ['no token', () => '', 'invalid_request'],
    ['a number', () => 1, 'invalid_request'],
    ['data that the application refuses', () => set('unfit'), 'invalid_request'],
  ])('reports %s by its code, and goes on', async (_case, token, err) => {
    const { handlers } = await start();
    handlers.failures.set('unfit', new UnprocessableEntityException(['x must be a string']));
    (await transmitter.next()).answer({ bad: token('bad'), good: set('good') });
    const { body, headers } = await transmitter.next();

    expect(body['ack']).toEqual(['good']);
    expect(body['setErrs']).toEqual({ bad: { err, description: expect.stringMatching(/./) } });
    expect(headers['content-language']).toBe('en');
    expect(handlers.ids.at(-1)).toBe('good');
  });

  it('leaves an event with the transmitter whose time has not come', async () => {
    const { handlers } = await start();
    const early = set('early', { iat: seconds() + 62 });
    (await transmitter.next()).answer({ early, good: set('good') });
    while (handlers.ids.length === 0) await turn();
    await clock.advance(5_000);
    const second = await transmitter.next();
    second.answer({ early });
    const { body } = await transmitter.next();

    expect([second.body['ack'], second.body['setErrs']]).toEqual([['good'], undefined]);
    expect(body['ack']).toEqual(['early']);
    expect(handlers.ids).toEqual(['good', 'early']);
  });

  it('reports an event whose key was withdrawn, and not one whose key may be new', async () => {
    const jwks = await JwksServer.start([
      { ...rsa.publicKey.export({ format: 'jwk' }), kid: 'k1' },
    ]);
    const { logger } = await start({}, {}, undefined, ReceivedEvents, {
      jwksUri: jwks.uri,
      jwksFetch: { ca: JWKS_CA, allowPrivateNetworks: true },
    });
    const signer = { key: stranger.privateKey, kid: 'k2' };
    const recent = set('recent', { iat: Math.floor(Date.now() / 1_000) }, signer);
    (await transmitter.next()).answer({ old: set('old', { iat: 1_700_000_000 }, signer), recent });
    await clock.advance(5_000);
    const { body, answer } = await transmitter.next();
    answer({ recent });
    const alone = await nextAfterPause();
    alone.answer({ good: set('good') });
    await transmitter.next();
    await jwks.close();

    expect(body['setErrs']).toEqual({ old: expect.objectContaining({ err: 'invalid_key' }) });
    expect([alone.body['ack'], alone.body['setErrs']]).toEqual([undefined, undefined]);
    expect(logger.at('error').join('\n')).toMatch(/none of the fetched events .*unknown_key/);
    expect(logger.at('log').filter((line) => line.includes('events again'))).toHaveLength(1);
  });

  it('leaves an event with the transmitter that a guard refuses with 429', async () => {
    const runs: ExecutionContext[] = [];
    class Gate implements CanActivate {
      canActivate(context: ExecutionContext): boolean {
        if (runs.push(context) === 1) throw new HttpException('not now', 429);
        return true;
      }
    }
    @UseGuards(Gate)
    class Guarded extends ReceivedEvents {}
    const { handlers } = await start({}, {}, undefined, Guarded);
    (await transmitter.next()).answer({ a: set('a') });
    while (runs.length === 0) await turn();
    for (let turns = 0; turns < 50; turns++) await turn();
    await clock.advance(5_000);
    const second = await transmitter.next();
    second.answer({ a: set('a') });
    const { body } = await transmitter.next();

    expect([second.body['ack'], second.body['setErrs']]).toEqual([undefined, undefined]);
    expect(body['ack']).toEqual(['a']);
    expect(handlers.ids).toEqual(['a']);
  });

  it('reports another event under a known id', async () => {
    const { handlers } = await start();
    (await transmitter.next()).answer({ a: set('a') });
    (await transmitter.next()).answer({ a: set('a', { events: { 'urn:other': {} } }) });
    const { body } = await nextAfterPause();

    expect(body['setErrs']).toMatchObject({ a: { err: 'invalid_request' } });
    expect(handlers.ids).toEqual(['a']);
  });

  it.each<[string, () => Json, boolean]>([
    ['no event', () => ({}), false],
    ['no event, though there are more', () => ({}), true],
    ['an event that was handled before', () => ({ a: set('a') }), true],
    ['a rejected event', () => ({ b: set('b', { aud: 'x' }) }), true],
  ])('pauses after an answer with %s', async (_case, sets, more) => {
    await start({ interval: '7s' });
    (await transmitter.next()).answer({ a: set('a') });
    (await transmitter.next()).answer(sets(), more);
    for (let turns = 0; turns < 50; turns++) await turn();
    await clock.advance(6_999);
    const early = transmitter.polls;
    await clock.advance(1);
    await transmitter.next();

    expect(early).toBe(2);
  });

  it('asks again at once if the transmitter held the request', async () => {
    await start({ interval: '7s' });
    const held = await transmitter.next();
    await clock.advance(8_000);
    held.answer();

    expect((await transmitter.next()).body['returnImmediately']).toBe(false);
  });

  it.each([
    ['no events', () => ({})],
    ['an event', () => ({ a: set('a') })],
  ])('asks again after %s if the clock was set back during the request', async (_case, sets) => {
    await start();
    const held = await transmitter.next();
    const asked = clock.now();
    clock.set(asked - 86_400_000);
    held.answer(sets());
    while (transmitter.polls === 1) await clock.advance(1_000);

    expect(clock.now()).toBeLessThan(asked);
  });

  it('may ask for an immediate answer, and for fewer events', async () => {
    await start({ longPolling: false, maxEvents: 3 });

    expect((await transmitter.next()).body).toEqual({ maxEvents: 3, returnImmediately: true });
  });

  it('takes no more events than it asked for, and leaves the others to the sender', async () => {
    await start({ maxEvents: 2 });
    const first = await transmitter.next();
    first.answer(Object.fromEntries(['a', 'b', 'c'].map((id) => [id, set(id)])));
    const second = await transmitter.next();

    expect(second.body).toMatchObject({ ack: ['a', 'b'] });
  });

  it('takes the Authorization header from a function each time', async () => {
    let calls = 0;
    await start({ authorization: async () => `Bearer ${++calls}` });
    const first = await transmitter.next();
    first.answer();
    const second = await nextAfterPause();

    expect([first, second].map(({ headers }) => headers.authorization)).toEqual([
      'Bearer 1',
      'Bearer 2',
    ]);
  });

  it.each<[string, (poll: Poll) => void, RegExp]>([
    ['an error', (poll) => poll.fail(500), /status 500/],
    ['a refusal', (poll) => poll.fail(401), /status 401/],
    ['a redirect', (poll) => poll.fail(307, { location: '/x' }), /redirects are not followed/],
    [
      'a change of the protocol',
      (poll) => poll.fail(101, { connection: 'upgrade', upgrade: 'h2c' }),
      /HPE_UNEXPECTED_UPGRADE/,
    ],
    ['text', (poll) => poll.fail(200, {}, 'busy'), /not JSON/],
    ['a list', (poll) => poll.fail(200, {}, '[]'), /no object "sets"/],
    ['a list of tokens', (poll) => poll.fail(200, {}, '{"sets":["x"]}'), /no object "sets"/],
    [
      'too many bytes',
      (poll) => poll.fail(200, {}, JSON.stringify({ sets: { a: 'x'.repeat(500_000) } })),
      /more than \d+ bytes/,
    ],
  ])('backs off after %s, and logs it once', async (_case, fail, message) => {
    const { handlers, logger } = await start();
    for (let round = 0; round < 2; round++) {
      fail(await transmitter.next());
      const { polls } = transmitter;
      while (transmitter.polls === polls) await clock.advance(100);
    }
    (await transmitter.next()).answer({ a: set('a') });
    await transmitter.next();

    expect(logger.at('error').filter((line) => message.test(line))).toHaveLength(1);
    expect(logger.at('log').filter((line) => line.includes('events again'))).toHaveLength(1);
    expect(handlers.ids).toEqual(['a']);
  });

  it.each([
    ['seconds', () => '120', 120_000],
    ['a date', () => new Date(seconds() * 1_000 + 120_000).toUTCString(), 119_600],
    ['an hour at most', () => '86400', 3_600_000],
    ['an hour at most, by a date', () => 'Sat, 24 Nov 2029 10:00:00 GMT', 3_600_000],
  ])('respects Retry-After: %s', async (_case, header, wait) => {
    await start();
    (await transmitter.next()).fail(429, { 'retry-after': header() });
    await clock.advance(wait - 1_000);
    const early = transmitter.polls;
    await clock.advance(1_100);
    await transmitter.next();

    expect(early).toBe(1);
  });

  it('reports an event again if the report failed', async () => {
    await start();
    (await transmitter.next()).answer({ a: set('a') });
    const second = await transmitter.next();
    second.fail(503);
    while (transmitter.polls === 2) await clock.advance(100);

    expect((await transmitter.next()).body['ack']).toEqual(['a']);
  });

  it('gives up a request after its timeout', async () => {
    const { logger } = await start({ timeout: '30s' });
    const { closed } = await transmitter.next();
    await clock.advance(30_000);
    await closed;
    while (transmitter.polls === 1) await clock.advance(100);

    expect(logger.at('error').join('\n')).toMatch(/no complete answer arrived in time/);
  });

  it('gives up the function "authorization" after its timeout, or when the application stops', async () => {
    const calls: number[] = [];
    const authorization = async (): Promise<string> =>
      calls.push(clock.now()) === 2 ? 'Bearer 2' : new Promise(() => {});
    const { app, logger } = await start({ timeout: '30s', authorization });
    await clock.advance(30_000);
    while (calls.length === 1) await clock.advance(100);
    const poll = await transmitter.next();
    poll.answer({}, true);
    while (calls.length === 2) await clock.advance(100);
    await app.close();
    started.splice(0);

    expect(poll.headers.authorization).toBe('Bearer 2');
    expect(logger.at('error').join('\n')).toMatch(/"authorization" did not end in time/);
  });

  it('ends a request that waits when the application stops', async () => {
    const { app } = await start();
    const { closed } = await transmitter.next();
    await app.close();
    await closed;
    started.splice(0);

    expect(transmitter.polls).toBe(1);
    expect(clock.waiting).toBe(0);
  });

  it('ends a request that waits while the handler of a pushed event still runs', async () => {
    let [release, running] = [(): void => undefined, (): void => undefined];
    const held = new Promise<void>((resolve) => (release = resolve));
    const runs = new Promise<void>((resolve) => (running = resolve));
    class Slow implements CanActivate {
      async canActivate(): Promise<boolean> {
        running();
        await held;
        return true;
      }
    }
    @UseGuards(Slow)
    class Guarded extends ReceivedEvents {}
    const { app, origin } = await start({}, { path: 'events' }, undefined, Guarded);
    const { closed } = await transmitter.next();
    const headers = { 'content-type': 'application/secevent+jwt' };
    const pushed = send(origin, { path: '/events', headers, body: set('pushed') });
    await runs;
    const stopped = app.close();
    await closed;
    release();
    await stopped;
    started.splice(0);

    expect((await pushed).status).toBe(202);
    expect(transmitter.polls).toBe(1);
  });

  it('reports what was handled when the application stops', async () => {
    const { app } = await start();
    (await transmitter.next()).answer({ a: set('a') });
    await transmitter.next();
    const stopped = app.close();
    const last = await transmitter.next();
    last.answer();
    await stopped;
    started.splice(0);

    expect(last.body).toEqual({ maxEvents: 0, returnImmediately: true, ack: ['a'] });
  });

  it('acknowledges an event that is queued', async () => {
    const { app, handlers } = await start(
      {},
      { acknowledge: 'queued', queue: new InProcessQueue({ clock }) },
    );
    (await transmitter.next()).answer({ a: set('a') });
    const second = await transmitter.next();
    await flushDeliveries(app);

    expect(second.body['ack']).toEqual(['a']);
    expect(handlers.ids).toEqual(['a']);
  });

  it('records fetched events in the inbox, and rejected ones too', async () => {
    const { app } = await start();
    (await transmitter.next()).answer({ a: set('a'), b: set('b', { aud: 'x' }) });
    await transmitter.next();
    const { entries } = await app.get(WebhookInbox).list();

    expect(entries.map(({ outcome, status, path }) => [outcome, status, path])).toEqual(
      expect.arrayContaining([
        ['handled', 202, transmitter.url.replace(/\?.*/, '')],
        ['refused', 400, transmitter.url.replace(/\?.*/, '')],
      ]),
    );
  });

  it('prints no token and no secret', async () => {
    const { logger } = await start({ authorization: 'Bearer hidden-access' });
    const token = set('a', { aud: 'x' });
    (await transmitter.next()).answer({ a: token });
    (await nextAfterPause()).fail(500);
    await nextAfterPause();

    const lines = logger.lines.join('\n');
    expect(lines).toMatch(/status 500/);
    expect(lines).not.toMatch(/hidden-access|stream=s1|eyJ/);
  });
});

it('refuses to reject duplicates, which the transmitter would return again', async () => {
  const starting = startApp(adapters[0]![1](), {
    options: {
      receiver: {
        sender: securityEvents({
          issuer: ISSUER,
          audience: AUDIENCE,
          keys: [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }],
          poll: { url: 'https://idp.example/poll' },
        }),
        replay: { onDuplicate: 'reject' },
      },
    },
  });

  await expect(starting).rejects.toThrow(/replay\.onDuplicate: must be 'acknowledge'/);
});

it.each<[string, Partial<PollOptions>, RegExp]>([
  ['no URL', { url: undefined }, /poll\.url/],
  ['plain HTTP', { url: 'http://idp.example/poll' }, /https/],
  ['credentials in the URL', { url: 'https://a:b@idp.example/poll' }, /poll\.url/],
  ['a private address', { url: 'https://127.0.0.1/poll' }, /poll\.url/],
  ['too many events', { maxEvents: 1_001 }, /maxEvents/],
  ['a misspelt option', { maxEvent: 1 } as never, /maxEvents/],
  ['an empty authorization', { authorization: '' }, /authorization/],
])('refuses %s', (_, poll, message) => {
  const create = () =>
    securityEvents({
      issuer: ISSUER,
      audience: AUDIENCE,
      keys: [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }],
      poll: { url: 'https://idp.example/poll', ...poll },
    });

  expect(create).toThrow(WebhookConfigurationError);
  expect(create).toThrow(message);
});

function changed(token: string): string {
  const [header, claims, signature] = token.split('.');
  const json = Buffer.from(claims!, 'base64url').toString().replace('policy', 'police');
  return `${header}.${Buffer.from(json).toString('base64url')}.${signature}`;
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
