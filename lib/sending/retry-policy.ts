import type { AttemptResult, UnsuccessfulAttempt } from './attempt-result.js';
import type { DeliveryOutcome } from '../queue/webhook-queue.js';
import { spread, type RetrySchedule } from '../queue/retry-schedule.js';
import {
  CONFLICT_WAIT,
  MAX_RETRY_AFTER,
  OVERLOAD_WAIT,
  UNAVAILABLE_PAUSE,
} from '../publisher/publisher.constants.js';

/** When to attempt a delivery again; durations in milliseconds. */
export interface RetryPolicy extends RetrySchedule {
  /** Ends a delivery early: `false` gives it up. */
  readonly retryIf?: (result: UnsuccessfulAttempt) => boolean;
}

/** What follows from one attempt. */
export interface RetryDecision {
  readonly outcome: DeliveryOutcome;
  /** Until then (epoch milliseconds) the endpoint's other deliveries wait: it has no time for them. */
  readonly pauseEndpointUntil?: number;
  /** The endpoint is gone for good (410). */
  readonly disableEndpoint?: boolean;
}

const CONFLICT = 409;
const GONE = 410;
const TOO_MANY_REQUESTS = 429;
const SERVICE_UNAVAILABLE = 503;

/**
 * Decides what follows from an attempt. Pure: the same input gives the same decision.
 *
 * Everything that is not acknowledged is tried again, 401, 403 and 404 too: a receiver in the middle of a
 * deploy answers them, and nothing may be lost by it.
 *
 * @param now - epoch milliseconds
 * @param random - in [0, 1), for the jitter
 */
export function decideRetry(
  policy: RetryPolicy,
  result: AttemptResult,
  now: number,
  random: number,
): RetryDecision {
  if (result.outcome === 'acknowledged') return { outcome: { type: 'delivered' } };
  if (result.outcome === 'refused') return giveUp(result);
  // Our own shutdown cut it off, which says nothing about the receiver and counts as no attempt.
  if (result.reason === 'aborted') return { outcome: { type: 'defer', at: now } };
  if (result.statusCode === GONE) return { ...giveUp(result), disableEndpoint: true };

  const pause = pauseOf(result);
  const decision =
    result.attempt >= policy.attempts || policy.retryIf?.(result) === false
      ? giveUp(result)
      : retryAt(now + waitAfter(policy, result, random), result);
  return pause === undefined ? decision : { ...decision, pauseEndpointUntil: now + pause };
}

function giveUp({ reason, attempt }: UnsuccessfulAttempt): RetryDecision {
  return { outcome: { type: 'dead', reason, attempts: attempt } };
}

function retryAt(at: number, { reason }: UnsuccessfulAttempt): RetryDecision {
  return { outcome: { type: 'retry', at: Math.round(at), reason } };
}

type FailedAttempt = Extract<AttemptResult, { outcome: 'failed' }>;

function waitAfter(policy: RetryPolicy, result: FailedAttempt, random: number): number {
  const isBareConflict = result.statusCode === CONFLICT && result.retryAfter === undefined;
  const scheduled = isBareConflict ? CONFLICT_WAIT : policy.waitBefore(result.attempt + 1);
  // Jitter may shorten our own schedule, never what the receiver asks for.
  return Math.max(spread(scheduled, policy.jitter, random), askedWait(result), leastWait(result));
}

function askedWait({ retryAfter = 0 }: FailedAttempt): number {
  return Math.min(retryAfter, MAX_RETRY_AFTER);
}

function leastWait({ statusCode, reason }: FailedAttempt): number {
  return statusCode === TOO_MANY_REQUESTS || reason === 'timeout' ? OVERLOAD_WAIT : 0;
}

function pauseOf(result: FailedAttempt): number | undefined {
  // A destination that swallows requests would hold its slots of the queue for a whole deadline each.
  if (result.reason === 'timeout') return OVERLOAD_WAIT;
  switch (result.statusCode) {
    case TOO_MANY_REQUESTS:
      return Math.max(askedWait(result), OVERLOAD_WAIT);
    case SERVICE_UNAVAILABLE:
      return result.retryAfter === undefined ? UNAVAILABLE_PAUSE : askedWait(result);
    default:
      return undefined;
  }
}
