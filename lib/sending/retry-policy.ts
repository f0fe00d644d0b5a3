import { type Duration, HOUR, MINUTE, SECOND } from '../clock/duration.js';
import { MAX_RETRY_AFTER } from '../clock/retry-after.js';
import type { AttemptResult, UnsuccessfulAttempt } from './attempt-result.js';
import type { DeliveryRun } from '../queue/webhook-delivery.js';
import { func, object, optional, type Read } from '../options/rules.js';
import {
  callSafely,
  JITTER,
  WAITS,
  resolveRetrySchedule,
  RETRY_SCHEDULE,
  spread,
  type RetrySchedule,
  type RetryScheduleOptions,
} from '../queue/retry-schedule.js';

/**
 * Milliseconds before the first, second, … attempt: 10 attempts over 75 h 35 min.
 *
 * @see Standard Webhooks, "Deliverability and reliability"
 */
const DEFAULT_RETRY_SCHEDULE: readonly number[] = [
  0,
  5 * SECOND,
  5 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  14 * HOUR,
  20 * HOUR,
  24 * HOUR,
];

/** Minimum wait in milliseconds after a 429 or a timeout: the receiver is overloaded. */
export const OVERLOAD_WAIT = MINUTE;

/** Milliseconds after 409 without Retry-After: another copy is being handled and will finish soon. */
const CONFLICT_WAIT = 5 * SECOND;

/**
 * Failures in a row from which the endpoint waits after a 503 without Retry-After. A busy receiver answers some of its
 * requests 503; only repetition shows that it has no time for the others either.
 */
const FAILURES_BEFORE_WAIT = 3;
/** Milliseconds of the first such wait; each further failure in a row doubles it. */
const FIRST_UNAVAILABLE_WAIT = SECOND;
const LONGEST_UNAVAILABLE_WAIT = 5 * SECOND;

/**
 * How often and when a delivery is attempted: by default 10 times, after 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h,
 * 24 h.
 */
export interface WebhookRetryOptions extends RetryScheduleOptions {
  /**
   * Returns `false` to give a delivery up early. It must be synchronous: if it throws or returns a promise, the delivery is
   * retried, because a bug in it must not lose an event.
   */
  readonly retryIf?: ((result: UnsuccessfulAttempt) => boolean) | undefined;
}

/** When to retry a delivery; durations in milliseconds. */
export interface RetryPolicy extends RetrySchedule {
  /** `false` gives the delivery up early. */
  readonly retryIf?: ((result: UnsuccessfulAttempt) => boolean) | undefined;
}

/** The retry settings of one endpoint; what is left out is taken from the publisher. */
export interface EndpointRetryOptions extends Pick<RetryScheduleOptions, 'attempts' | 'jitter'> {
  /** The wait before attempt 1, 2, …, each of at most 30 days; the last repeats. */
  readonly schedule?: readonly Duration[] | undefined;
}

/** `overloadedUntil`: the endpoint has no time for its other deliveries either, so they wait. */
export type RetryDecision = Pick<DeliveryRun, 'outcome' | 'overloadedUntil'>;

const CONFLICT = 409;
const GONE = 410;
const TOO_MANY_REQUESTS = 429;
const SERVICE_UNAVAILABLE = 503;

/**
 * Decides what follows from an attempt. Pure: the same input gives the same decision.
 *
 * Every failure is retried, including 401, 403 and 404, which a receiver may answer during a deployment.
 *
 * @param now - epoch milliseconds
 * @param random - in [0, 1), for the jitter
 * @param earlierFailures - failed attempts in a row of the same endpoint, before this one
 */
export function decideRetry(
  policy: RetryPolicy,
  result: AttemptResult,
  now: number,
  random: number,
  earlierFailures = 0,
): RetryDecision {
  if (result.verdict === 'acknowledged') return { outcome: { type: 'delivered' } };
  if (result.verdict === 'refused') return giveUp(result);
  // Aborted by our own shutdown, which says nothing about the receiver and does not count as an attempt.
  if (result.reason === 'aborted') return { outcome: { type: 'defer', at: now } };
  if (result.statusCode === GONE) return giveUp(result);

  const wait = overloadWait(result, earlierFailures);
  const decision =
    result.attempt >= policy.attempts || policy.retryIf?.(result) === false
      ? giveUp(result)
      : retryAt(now + waitAfter(policy, result, random), result);
  return wait === undefined ? decision : { ...decision, overloadedUntil: now + wait };
}

function giveUp({ reason, attempt }: UnsuccessfulAttempt): RetryDecision {
  return { outcome: { type: 'dead', reason, attempts: attempt } };
}

function retryAt(at: number, { reason }: UnsuccessfulAttempt): RetryDecision {
  return { outcome: { type: 'retry', at: Math.round(at), reason } };
}

type FailedAttempt = Extract<AttemptResult, { verdict: 'failed' }>;

function waitAfter(policy: RetryPolicy, result: FailedAttempt, random: number): number {
  const isBareConflict = result.statusCode === CONFLICT && result.retryAfter === undefined;
  const scheduled = isBareConflict ? CONFLICT_WAIT : policy.waitBefore(result.attempt + 1);
  // Jitter may shorten our own schedule, but never the wait that the receiver asks for.
  return Math.max(spread(scheduled, policy.jitter, random), askedWait(result), leastWait(result));
}

function askedWait({ retryAfter = 0 }: FailedAttempt): number {
  return Math.min(retryAfter, MAX_RETRY_AFTER);
}

function leastWait({ statusCode, reason }: FailedAttempt): number {
  return statusCode === TOO_MANY_REQUESTS || reason === 'timeout' ? OVERLOAD_WAIT : 0;
}

function overloadWait(result: FailedAttempt, earlierFailures: number): number | undefined {
  // An endpoint that never answers would occupy each slot of the queue for a whole timeout.
  if (result.reason === 'timeout') return OVERLOAD_WAIT;
  switch (result.statusCode) {
    case TOO_MANY_REQUESTS:
      return Math.max(askedWait(result), OVERLOAD_WAIT);
    case SERVICE_UNAVAILABLE:
      return result.retryAfter === undefined
        ? unavailableWait(earlierFailures + 1)
        : askedWait(result);
    default:
      return undefined;
  }
}

export const RETRY = object<WebhookRetryOptions>()({
  ...RETRY_SCHEDULE,
  retryIf: optional(func<NonNullable<WebhookRetryOptions['retryIf']>>('(result) => boolean')),
});

export const ENDPOINT_RETRY = object<EndpointRetryOptions>()({
  attempts: RETRY_SCHEDULE.attempts,
  schedule: optional(WAITS),
  jitter: optional(JITTER),
});

/** Applies the retry settings of an endpoint over those of the publisher. */
export function applyRetry(
  fallback: RetryPolicy,
  own: Partial<Read<typeof ENDPOINT_RETRY>> | undefined,
): RetryPolicy {
  if (own === undefined) return fallback;
  const { attempts = fallback.attempts, schedule, jitter = fallback.jitter } = own;
  const { waitBefore, retryIf } = fallback;
  if (schedule === undefined) return { attempts, jitter, waitBefore, retryIf };
  return { ...resolveRetrySchedule({ attempts, schedule, jitter }, schedule), retryIf };
}

export function resolveRetryOptions(options?: Read<typeof RETRY>): RetryPolicy {
  const retryIf = options?.retryIf;
  return {
    ...resolveRetrySchedule(options, DEFAULT_RETRY_SCHEDULE),
    retryIf: retryIf && retryUnlessRefused(retryIf),
  };
}

function retryUnlessRefused(
  retryIf: NonNullable<WebhookRetryOptions['retryIf']>,
): NonNullable<RetryPolicy['retryIf']> {
  return (result) => callSafely(() => retryIf(result)) ?? true;
}

function unavailableWait(failuresInRow: number): number | undefined {
  const repetitions = failuresInRow - FAILURES_BEFORE_WAIT;
  if (repetitions < 0) return undefined;
  return Math.min(FIRST_UNAVAILABLE_WAIT * 2 ** repetitions, LONGEST_UNAVAILABLE_WAIT);
}
