import { afterEach, describe, expect, it } from '@jest/globals';
import {
  verifyWebhookPayload,
  createTokenVerifier,
  type VerifiedWebhookToken,
  type WebhookProfile,
} from 'nestjs-webhook-token/token';
import { signWebhook } from '../../lib/testing/sign-webhook.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { createExpress } from '../fixtures/adapters.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { head } from '../fixtures/http-client.js';

/** Far from the system time, so that the clocks cannot be confused. */
const START = Date.UTC(2001, 0, 1);
const signing = { issuer: ISSUER, secret: SECRET };

describe('signWebhook', () => {
  const clock = new TestClock(START);

  it.each([
    ['the clock that is passed', { clock }, START],
    ['`now`, if both are passed', { clock, now: () => START + 60_000 }, START + 60_000],
  ])('signs at the time of %s', async (_, time, expected) => {
    const { token } = await signWebhook('order.created', { id: 'o1' }, { ...signing, ...time });
    const verifier = createTokenVerifier({ issuers: [signing], now: () => expected });

    const { claims } = await verifier.verify(token);

    expect(claims.iat).toBe(expected / 1_000);
  });

  it('signs at the system time without a clock', async () => {
    const before = Math.floor(Date.now() / 1_000);

    const { token } = await signWebhook('order.created', { id: 'o1' }, signing);
    const { claims } = await createTokenVerifier({ issuers: [signing] }).verify(token);

    expect(claims.iat).toBeGreaterThanOrEqual(before);
  });
});

describe('signWebhook with a profile', () => {
  it.each<[WebhookProfile, 'auto' | 'POST', object | undefined, string, string]>([
    ['webhook-token', 'auto', { id: 'o1' }, 'HEAD', 'data'],
    ['webhook-token', 'POST', { id: 'o1' }, 'POST', 'body'],
    ['webhook-token', 'POST', undefined, 'POST', 'none'],
    ['swt-draft-00', 'auto', { id: 'o1' }, 'HEAD', 'data'],
    ['swt-draft-00', 'POST', { id: 'o1' }, 'POST', 'body'],
    ['swt-draft-00', 'POST', undefined, 'POST', 'none'],
    ['swt-draft-02', 'auto', { id: 'o1' }, 'POST', 'body'],
    ['swt-draft-02', 'auto', undefined, 'POST', 'none'],
  ])(
    'signs %s with %s and %j as a %s with its %s',
    async (profile, wanted, data, method, source) => {
      const signed = await signWebhook('order.created', data, {
        ...signing,
        profile,
        method: wanted,
      });
      const verifier = createTokenVerifier({ issuers: [signing], profiles: [profile] });
      const { claims } = verifier.verify(signed.token) as VerifiedWebhookToken;

      expect(signed.method).toBe(method);
      expect(verifyWebhookPayload(claims, { ...signed, profile })).toEqual({
        source,
        bodyVerified: true,
      });
    },
  );
});

describe("signWebhook with the method 'HEAD'", () => {
  it.each([
    ['a list', [1], {}],
    ['an object of more than 6000 bytes', { text: 'x'.repeat(6_000) }, {}],
    ['bytes', Buffer.from('a,b'), { contentType: 'text/csv' }],
    ['an object that looks like a reference to a body', { hash: 'a'.repeat(64), size: 1 }, {}],
    ['an object, in a profile without HEAD', { id: 'o1' }, { profile: 'swt-draft-02' as const }],
  ])('refuses %s', async (_, data, more) => {
    const options = { ...signing, ...more, method: 'HEAD' as const };

    await expect(signWebhook('order.created', data as never, options)).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(/^HEAD cannot carry this payload; use the method 'auto'\./),
    });
  });

  it.each([[{ id: 'o1' }], [undefined]])('signs %j', async (data) => {
    const signed = await signWebhook('order.created', data, { ...signing, method: 'HEAD' });

    expect(signed).toMatchObject({ method: 'HEAD', body: undefined });
  });
});

describe('a receiver on a TestClock', () => {
  let started: StartedApp;
  afterEach(() => started.app.close());

  it('accepts a token that is signed with the same clock, until it expires', async () => {
    const clock = new TestClock(START);
    started = await startApp(createExpress(), { options: { ...receiverOptions(), clock } });
    const { token } = await signWebhook('order.created', { id: 'o1' }, { ...signing, clock });
    const { token: late } = await signWebhook('order.created', { id: 'o2' }, { ...signing, clock });

    expect((await head(started.origin, token)).status).toBe(204);

    await clock.advance(3_600_000);
    const answer = await head(started.origin, late);
    expect([answer.status, answer.headers['webhook-error']]).toEqual([401, 'token_expired']);
  });
});
