import { afterEach, describe, expect, it } from '@jest/globals';
import { signWebhook } from '../../lib/testing/sign-webhook.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { createTokenVerifier } from '../../lib/token/token-verifier.js';
import { adapters } from '../fixtures/adapters.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { head } from '../fixtures/http-client.js';

/** Far from the machine's time, so that one clock cannot be taken for the other. */
const START = Date.UTC(2001, 0, 1);
const signing = { issuer: ISSUER, secret: SECRET };

describe('signWebhook', () => {
  const clock = new TestClock(START);

  it.each([
    ['the clock it is given', { clock }, START],
    ['`now`, if that is given as well', { clock, now: () => START + 60_000 }, START + 60_000],
  ])('signs at the time of %s', async (_, time, expected) => {
    const { token } = await signWebhook('order.created', { id: 'o1' }, { ...signing, ...time });
    const verifier = createTokenVerifier({ issuers: [signing], now: () => expected });

    const { claims } = await verifier.verify(token);

    expect(claims.iat).toBe(expected / 1_000);
  });

  it("signs at the machine's time without one", async () => {
    const before = Math.floor(Date.now() / 1_000);

    const { token } = await signWebhook('order.created', { id: 'o1' }, signing);
    const { claims } = await createTokenVerifier({ issuers: [signing] }).verify(token);

    expect(claims.iat).toBeGreaterThanOrEqual(before);
  });
});

describe.each(adapters)('a receiver on a TestClock, on %s', (_, createAdapter) => {
  let started: StartedApp;
  afterEach(() => started.app.close());

  it('takes what is signed with that clock, until it expires', async () => {
    const clock = new TestClock(START);
    started = await startApp(createAdapter(), { options: { ...receiverOptions(), clock } });
    const { token } = await signWebhook('order.created', { id: 'o1' }, { ...signing, clock });
    const { token: late } = await signWebhook('order.created', { id: 'o2' }, { ...signing, clock });

    expect((await head(started.origin, token)).status).toBe(204);

    await clock.advance(3_600_000);
    const answer = await head(started.origin, late);
    expect([answer.status, answer.headers['webhook-error']]).toEqual([401, 'token_expired']);
  });
});
