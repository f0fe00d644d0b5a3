import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { MemoryReplayStore, OnWebhookEvent, type WebhookEvent } from 'nestjs-webhook-token';
import type { ReplayClaim, ReplayVerdict } from 'nestjs-webhook-token/ports';
import { standardWebhooks } from 'nestjs-webhook-token/senders';
import { TestClock } from 'nestjs-webhook-token/testing';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import { createExpress } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

@Injectable()
class Handlers {
  readonly handled: string[] = [];

  @OnWebhookEvent('order.created')
  created(_data: unknown, event: WebhookEvent): void {
    this.handled.push(event.id);
  }
}

const DATA = { number: 7, lines: [{ sku: 'a', count: 1 }], customer: { name: 'Ada', vip: true } };

describe('an event that is sent again with the same id', () => {
  let started: StartedApp;
  let txn: string;

  beforeAll(async () => {
    started = await startApp(createExpress(), { providers: [Handlers] });
  });
  afterAll(() => started.app.close());

  beforeEach(async () => {
    txn = crypto.randomUUID();
    expect((await head(started.origin, signed({ txn, data: DATA }))).status).toBe(204);
  });

  it.each([
    [
      'byte for byte the same',
      '{"number":7,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada","vip":true}}',
    ],
    [
      'with its members in another order',
      '{"customer":{"vip":true,"name":"Ada"},"lines":[{"count":1,"sku":"a"}],"number":7}',
    ],
    [
      'with other white space and escapes',
      '{\n  "number": 7.0,\n  "lines": [ { "sku": "\\u0061", "count": 1 } ],\n  "customer": { "name": "Ada", "vip": true }\n}\n',
    ],
  ])('is a duplicate if its body is %s', async (_how, body) => {
    const answer = await post(started.origin, signedBody(body, { txn }));

    expect(answer.status).toBe(204);
    expect(answer.headers['webhook-duplicate']).toBe('true');
    expect(timesHandled(started, txn)).toBe(1);
  });

  it.each([
    [
      'another value',
      '{"number":8,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada","vip":true}}',
    ],
    [
      'an additional member',
      '{"number":7,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada","vip":true},"x":1}',
    ],
    [
      'a member in another place',
      '{"number":7,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada"},"vip":true}',
    ],
  ])('is rejected as replayed if its body has %s', async (_how, body) => {
    const answer = await post(started.origin, signedBody(body, { txn }));

    expect(answer.status).toBe(401);
    expect(answer.json).toMatchObject({ code: 'replayed' });
    expect(timesHandled(started, txn)).toBe(1);
  });
});

it.each([
  ['96 h by default', {}, 96],
  ['the time of replay.window', { replay: { window: '24h' } }, 24],
])('an event is known for %s, longer than its token is valid', async (_how, change, hours) => {
  const clock = new TestClock(Date.now());
  const { app, origin } = await startApp(createExpress(), {
    options: { ...receiverOptions(change), clock },
    providers: [Handlers],
  });
  const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => clock.now() });
  const sendAgain = async (): Promise<unknown> => {
    const token = signer.sign({ event: 'order.created', txn: 'order-9' }) as string;
    return (await head(origin, token)).headers['webhook-duplicate'];
  };
  const seen = [await sendAgain()];
  await clock.advance(hours * 3_600_000 - 1);
  seen.push(await sendAgain());
  // A copy starts the time again.
  await clock.advance(hours * 3_600_000);
  seen.push(await sendAgain());
  await app.close();

  expect(seen).toEqual([undefined, 'true', undefined]);
});

/** As on Redis and PostgreSQL, an entry ends by the server's clock, after the time that its claim has left by the receiver's. */
class ServerStore extends MemoryReplayStore {
  /** Milliseconds by which the clock of the receiver that asks is ahead. */
  ahead = 0;

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const [replayUntil, keepUntil] = [claim.replayUntil - this.ahead, claim.keepUntil - this.ahead];
    return super.reserve({ ...claim, replayUntil, keepUntil });
  }
}

it('an event is known as long as a receiver accepts its token whose clock is behind by clockTolerance', async () => {
  const [lifetime, clockTolerance] = [300_000, 60_000];
  const now = Math.floor(Date.now() / 1_000) * 1_000;
  const clock = new TestClock(now);
  const store = new ServerStore({ clock });
  const options = receiverOptions({ clockTolerance: '60s', replay: { store, window: '1s' } });
  const startWith = async (own: TestClock): Promise<StartedApp> =>
    startApp(createExpress(), { options: { ...options, clock: own }, providers: [Handlers] });
  const first = await startWith(new TestClock(now + clockTolerance));
  const second = await startWith(clock);
  const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => now });
  const token = signer.sign({ event: 'order.created' }) as string;
  store.ahead = clockTolerance;
  const handled = await head(first.origin, token);
  store.ahead = 0;
  await clock.advance(lifetime + clockTolerance - 1);
  const copy = await head(second.origin, token);
  await Promise.all([first.app.close(), second.app.close()]);

  expect(handled.status).toBe(204);
  expect(copy.headers['webhook-duplicate']).toBe('true');
});

it('a signed request is known as long as its time is accepted', async () => {
  const clock = new TestClock(Math.floor(Date.now() / 1_000) * 1_000);
  const key = Buffer.alloc(32, 7);
  const sender = standardWebhooks({ secret: `whsec_${key.toString('base64')}` });
  const { app, origin } = await startApp(createExpress(), {
    options: {
      receiver: { path: 'webhooks', sender, clockTolerance: 0, replay: { window: '1s' } },
      clock,
    },
    providers: [Handlers],
  });
  const body = JSON.stringify({ type: 'order.created', data: DATA });
  const timestamp = String(clock.now() / 1_000);
  const signature = createHmac('sha256', key).update(`evt_1.${timestamp}.${body}`).digest('base64');
  const headers = {
    'webhook-id': 'evt_1',
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${signature}`,
  };
  const handled = await send(origin, { headers, body });
  await clock.advance(300_999);
  const copy = await send(origin, { headers, body });
  await clock.advance(1);
  const late = await send(origin, { headers, body });
  await app.close();

  expect([handled.status, copy.status, late.status]).toEqual([204, 204, 401]);
  expect(copy.headers['webhook-duplicate']).toBe('true');
});

/** JSON of at least so many bytes, its members in one order or the other. */
function order(bytes: number, isReversed = false): string {
  const members = Object.entries({ number: 7, note: 'x'.repeat(bytes), paid: true });
  return JSON.stringify(Object.fromEntries(isReversed ? members.toReversed() : members));
}

describe.each([
  ['in memory', false],
  ['in files', { above: 16 }],
] as const)('a body that is sent again with the same id, with bodies %s', (_, spool) => {
  let started: StartedApp;
  let txn: string;
  const text = { headers: { 'content-type': 'text/plain' } };

  beforeAll(async () => {
    const options = receiverOptions({ spool, requireHash: false });
    started = await startApp(new FastifyAdapter(), { options, providers: [Handlers] });
  });
  afterAll(() => started.app.close());
  beforeEach(() => {
    txn = crypto.randomUUID();
  });

  const isDuplicate = { status: 204, headers: { 'webhook-duplicate': 'true' } };
  const isReplayed = { status: 401, json: { code: 'replayed' } };

  it('is compared by value if a token can carry it, whatever carried it first', async () => {
    const data = JSON.parse(order(9_000)) as Record<string, unknown>;
    expect((await head(started.origin, signed({ txn, data }))).status).toBe(204);

    expect(await post(started.origin, signedBody(order(9_000, true), { txn }))).toMatchObject(
      isDuplicate,
    );
    expect(timesHandled(started, txn)).toBe(1);
  });

  it('is compared by its bytes if it is larger than any token', async () => {
    expect((await post(started.origin, signedBody(order(16_384), { txn }))).status).toBe(204);

    expect(await post(started.origin, signedBody(order(16_384), { txn }))).toMatchObject(
      isDuplicate,
    );
    expect(await post(started.origin, signedBody(order(16_384, true), { txn }))).toMatchObject(
      isReplayed,
    );
    expect(timesHandled(started, txn)).toBe(1);
  });

  it('is compared by its bytes if it is not JSON, with and without a hash in the token', async () => {
    const unhashed = { token: signed({ txn }), body: Buffer.from('one, two and three') };
    expect((await post(started.origin, unhashed, text)).status).toBe(204);

    const hashed = signedBody('one, two and three', { txn });
    expect(await post(started.origin, hashed, text)).toMatchObject(isDuplicate);
    const other = signedBody('one, two and four!', { txn });
    expect(await post(started.origin, other, text)).toMatchObject(isReplayed);
    expect(timesHandled(started, txn)).toBe(1);
  });
});

function timesHandled({ app }: StartedApp, id: string): number {
  return app.get(Handlers).handled.filter((handled) => handled === id).length;
}
