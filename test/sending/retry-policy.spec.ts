import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import type { FailureReason } from 'nestjs-webhook-token/ports';
import type { AttemptResult } from '../../lib/sending/attempt-result.js';
import { applyRetry, decideRetry, resolveRetryOptions } from '../../lib/sending/retry-policy.js';

const now = 1_767_225_600_000;
const MIDDLE = 0.5;
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const standard = policy({});

describe('decideRetry, by result', () => {
  it('counts an acknowledged attempt as delivered', () => {
    const result: AttemptResult = {
      verdict: 'acknowledged',
      attempt: 1,
      method: 'HEAD',
      durationMs: 1,
      statusCode: 204,
    };

    expect(decideRetry(standard, result, now, MIDDLE)).toEqual({ outcome: { type: 'delivered' } });
  });

  it.each([
    [200, 1, 5 * SECOND],
    [301, 1, 5 * SECOND],
    [400, 1, 5 * SECOND],
    [401, 1, 5 * SECOND],
    [403, 1, 5 * SECOND],
    [404, 1, 5 * SECOND],
    [404, 2, 5 * MINUTE],
    [409, 1, 5 * SECOND],
    [409, 8, 5 * SECOND],
    [422, 1, 5 * SECOND],
    [429, 1, MINUTE],
    [429, 2, 5 * MINUTE],
    [500, 1, 5 * SECOND],
    [500, 3, 30 * MINUTE],
    [500, 4, 2 * HOUR],
    [500, 5, 5 * HOUR],
    [500, 6, 10 * HOUR],
    [500, 7, 14 * HOUR],
    [500, 8, 20 * HOUR],
    [500, 9, 24 * HOUR],
    [503, 1, 5 * SECOND],
  ])('retries status %i after attempt %i in %i ms', (statusCode, attempt, wait) => {
    expect(decideRetry(standard, answered(statusCode, { attempt }), now, MIDDLE).outcome).toEqual({
      type: 'retry',
      at: now + wait,
      reason: `http_${statusCode}`,
    });
  });

  it.each<[FailureReason, number]>([
    ['dns', 5 * SECOND],
    ['connection_refused', 5 * SECOND],
    ['connection_reset', 5 * SECOND],
    ['tls', 5 * SECOND],
    ['response_too_large', 5 * SECOND],
    ['network', 5 * SECOND],
  ])('retries after %s in %i ms', (reason, wait) => {
    expect(decideRetry(standard, unanswered(reason), now, MIDDLE)).toEqual({
      outcome: { type: 'retry', at: now + wait, reason },
    });
  });

  it('retries a minute after a timeout, and treats the endpoint as overloaded until then', () => {
    expect(decideRetry(standard, unanswered('timeout'), now, MIDDLE)).toEqual({
      outcome: { type: 'retry', at: now + MINUTE, reason: 'timeout' },
      overloadedUntil: now + MINUTE,
    });
  });

  it('does not count an attempt that a shutdown aborted, whatever retryIf returns', () => {
    const picky = policy({ retryIf: () => false });

    expect(decideRetry(picky, { ...unanswered('aborted'), attempt: 10 }, now, MIDDLE)).toEqual({
      outcome: { type: 'defer', at: now },
    });
  });

  it.each<FailureReason>(['destination_blocked', 'invalid_request'])(
    'gives up immediately after %s',
    (reason) => {
      const result = { ...unanswered(reason), verdict: 'refused' } as const;

      expect(decideRetry(standard, result, now, MIDDLE)).toEqual({
        outcome: { type: 'dead', reason, attempts: 1 },
      });
    },
  );

  it('gives up on 410', () => {
    expect(decideRetry(standard, answered(410), now, MIDDLE)).toEqual({
      outcome: { type: 'dead', reason: 'http_410', attempts: 1 },
    });
  });

  it('gives up after the last attempt', () => {
    expect(decideRetry(standard, answered(500, { attempt: 10 }), now, MIDDLE).outcome).toEqual({
      type: 'dead',
      reason: 'http_500',
      attempts: 10,
    });
  });
});

describe('decideRetry, by Retry-After', () => {
  it.each([
    ['409 with less than the schedule', 409, 1, SECOND, 5 * SECOND],
    ['409 with more than the schedule', 409, 1, 20 * SECOND, 20 * SECOND],
    ['429 with less than a minute', 429, 1, 3 * SECOND, MINUTE],
    ['429 with more than a minute', 429, 1, HOUR, HOUR],
    ['503', 503, 1, 90 * SECOND, 90 * SECOND],
    ['503 with less than the schedule', 503, 3, 90 * SECOND, 30 * MINUTE],
    ['any other status', 500, 1, 2 * MINUTE, 2 * MINUTE],
    ['a redirect', 302, 1, 2 * MINUTE, 2 * MINUTE],
    ['more than a day', 503, 1, 48 * HOUR, 24 * HOUR],
  ])('honours it on %s', (_, statusCode, attempt, retryAfter, wait) => {
    const result = answered(statusCode, { attempt, retryAfter });

    expect(decideRetry(standard, result, now, MIDDLE).outcome).toMatchObject({ at: now + wait });
  });

  it.each([
    [429, undefined, MINUTE],
    [429, 2 * HOUR, 2 * HOUR],
    [503, 90 * SECOND, 90 * SECOND],
    [503, 48 * HOUR, 24 * HOUR],
  ])('treats the endpoint as overloaded after %i with %s ms', (statusCode, retryAfter, pause) => {
    for (const attempt of [1, 10]) {
      const decision = decideRetry(standard, answered(statusCode, { attempt, retryAfter }), now, 0);

      expect(decision.overloadedUntil).toBe(now + pause);
    }
  });

  it.each([
    [0, undefined],
    [1, undefined],
    [2, SECOND],
    [3, 2 * SECOND],
    [10, 5 * SECOND],
  ])(
    'after %i failures in a row, treats the endpoint as overloaded after a 503 for %s ms',
    (earlier, pause) => {
      const { overloadedUntil } = decideRetry(standard, answered(503), now, 0, earlier);

      expect(overloadedUntil).toBe(pause === undefined ? undefined : now + pause);
    },
  );

  it.each([409, 500, 502, 504])(
    'does not treat the endpoint as overloaded after %i',
    (statusCode) => {
      const decision = decideRetry(standard, answered(statusCode, { retryAfter: MINUTE }), now, 0);

      expect(decision.overloadedUntil).toBeUndefined();
    },
  );
});

describe('decideRetry, by option', () => {
  it('spreads the wait by the jitter, never below the Retry-After', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 9 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        fc.constantFrom(400, 409, 429, 500, 503),
        fc.option(fc.integer({ min: 0, max: 30 * HOUR }), { nil: undefined }),
        (attempt, jitter, random, statusCode, retryAfter) => {
          const result = answered(statusCode, { attempt, retryAfter });
          const { outcome } = decideRetry(policy({ jitter }), result, now, random);
          if (outcome.type !== 'retry') throw new Error(`unexpected ${outcome.type}`);
          const wait = outcome.at - now;
          const isBareConflict = statusCode === 409 && retryAfter === undefined;
          const scheduled = isBareConflict ? 5 * SECOND : standard.waitBefore(attempt + 1);
          const asked = Math.min(retryAfter ?? 0, 24 * HOUR);
          const least = Math.max(asked, statusCode === 429 ? MINUTE : 0);

          expect(wait).toBe(Math.round(wait));
          expect(wait).toBeGreaterThanOrEqual(Math.max(scheduled * (1 - jitter) - 1, least));
          expect(wait).toBeLessThanOrEqual(Math.max(scheduled * (1 + jitter) + 1, least));
        },
      ),
    );
  });

  it('uses the whole range of the jitter', () => {
    const waits = [0, 0.25, 0.5, 0.75, 1].map((random) => {
      const { outcome } = decideRetry(standard, answered(500), now, random);
      return outcome.type === 'retry' ? outcome.at - now : undefined;
    });

    expect(waits).toEqual([4_000, 4_500, 5_000, 5_500, 6_000]);
  });

  it('gives up early if retryIf returns false, and passes it the result', () => {
    const seen: unknown[] = [];
    const picky = policy({
      retryIf: (result) => {
        seen.push(result);
        return result.statusCode !== 422;
      },
    });

    expect(decideRetry(picky, answered(422), now, MIDDLE).outcome.type).toBe('dead');
    expect(decideRetry(picky, answered(500), now, MIDDLE).outcome.type).toBe('retry');
    expect(seen).toEqual([answered(422), answered(500)]);
  });

  it.each([{ attempts: 3 }, { schedule: [SECOND] }])(
    'asks the retryIf of the publisher for an endpoint with %j too',
    (own) => {
      const picky = applyRetry(policy({ retryIf: ({ statusCode }) => statusCode !== 422 }), own);

      expect(decideRetry(picky, answered(422), now, MIDDLE).outcome.type).toBe('dead');
      expect(decideRetry(picky, answered(500), now, MIDDLE).outcome.type).toBe('retry');
    },
  );

  it('retries if retryIf throws', () => {
    const faulty = policy({
      retryIf: () => {
        throw new Error('an error of the application');
      },
    });

    expect(decideRetry(faulty, answered(500), now, MIDDLE).outcome.type).toBe('retry');
  });

  it('catches the rejections of functions that should be synchronous', async () => {
    const unheard: unknown[] = [];
    const hear = (reason: unknown): void => void unheard.push(reason);
    process.on('unhandledRejection', hear);
    const late = (async () => {
      throw new Error('an error of the application');
    }) as never;
    const { outcome } = decideRetry(
      policy({ retryIf: late, schedule: late }),
      answered(500),
      now,
      MIDDLE,
    );
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', hear);

    expect(outcome).toEqual({ type: 'retry', at: now + 5 * SECOND, reason: 'http_500' });
    expect(unheard).toEqual([]);
  });

  it.each([
    ['a list whose last entry repeats', [5, 10], [5, 10, 10, 10]],
    ['a function', (attempt: number) => `${attempt}s`, [1_000, 2_000, 3_000, 4_000]],
    [
      'a function that returns years, limited to 30 days',
      () => Number.MAX_VALUE,
      Array.from({ length: 4 }, () => 30 * 24 * HOUR),
    ],
    [
      'a function that throws, replaced by the default',
      () => {
        throw new Error('no');
      },
      [0, 5 * SECOND, 5 * MINUTE, 30 * MINUTE],
    ],
    [
      'a function that returns no duration, replaced by the default',
      () => 'soon',
      [0, 5 * SECOND, 5 * MINUTE, 30 * MINUTE],
    ],
  ])('accepts a schedule: %s', (_, schedule, waits) => {
    const { waitBefore } = policy({ schedule });

    expect([1, 2, 3, 4].map(waitBefore)).toEqual(waits);
  });
});

function policy(options: Partial<NonNullable<Parameters<typeof resolveRetryOptions>[0]>>) {
  return resolveRetryOptions({
    attempts: undefined,
    schedule: undefined,
    retryIf: undefined,
    jitter: 0.2,
    ...options,
  });
}

type Failed = Extract<AttemptResult, { verdict: 'failed' }>;

function answered(
  statusCode: number,
  { attempt = 1, retryAfter }: { attempt?: number; retryAfter?: number | undefined } = {},
): Failed {
  return {
    verdict: 'failed',
    attempt,
    method: 'POST',
    durationMs: 10,
    statusCode,
    reason: `http_${statusCode}`,
    ...(retryAfter !== undefined && { retryAfter }),
  };
}

function unanswered(reason: FailureReason): Failed {
  return { verdict: 'failed', attempt: 1, method: 'POST', durationMs: 10, reason };
}
