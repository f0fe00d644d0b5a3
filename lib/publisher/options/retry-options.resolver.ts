import { parseDuration } from '../../clock/duration.js';
import type { ConfigurationFaults } from '../../errors/configuration-faults.js';
import type { WebhookRetryOptions } from './publisher-options.interface.js';
import {
  DEFAULT_RETRY_JITTER,
  DEFAULT_RETRY_SCHEDULE,
  MAX_RETRY_WAIT,
} from '../publisher.constants.js';
import type { RetryPolicy } from '../attempt/retry-policy.js';

const MOST_ATTEMPTS = 1_000;

/** Checks and fills the retry options; faults are collected, not thrown. */
export function resolveRetryOptions(
  options: WebhookRetryOptions,
  faults: ConfigurationFaults,
): RetryPolicy {
  const {
    attempts = DEFAULT_RETRY_SCHEDULE.length,
    jitter = DEFAULT_RETRY_JITTER,
    retryIf,
  } = options;
  faults.require(
    Number.isInteger(attempts) && attempts >= 1 && attempts <= MOST_ATTEMPTS,
    'attempts',
    `must be a whole number from 1 to ${MOST_ATTEMPTS}`,
  );
  faults.require(
    typeof jitter === 'number' && jitter >= 0 && jitter <= 1,
    'jitter',
    'must be a number from 0 to 1: 0.2 lets a wait differ by 20 % from the schedule',
  );
  faults.require(
    retryIf === undefined || typeof retryIf === 'function',
    'retryIf',
    'must be a function',
  );
  return {
    attempts,
    jitter,
    waitBefore: resolveSchedule(options.schedule, faults),
    ...(typeof retryIf === 'function' && { retryIf: retryUnlessRefused(retryIf) }),
  };
}

function resolveSchedule(
  schedule: WebhookRetryOptions['schedule'],
  faults: ConfigurationFaults,
): RetryPolicy['waitBefore'] {
  if (schedule === undefined) return (attempt) => entryFor(DEFAULT_RETRY_SCHEDULE, attempt);
  if (typeof schedule === 'function') {
    // A schedule that gives nonsense for one attempt must not stop a delivery: the default serves then.
    return (attempt) =>
      Math.min(
        parseDuration(orUndefined(() => schedule(attempt))) ??
          entryFor(DEFAULT_RETRY_SCHEDULE, attempt),
        MAX_RETRY_WAIT,
      );
  }
  if (!Array.isArray(schedule) || schedule.length === 0) {
    faults.add('schedule', "must be a list of durations like ['0s', '5s', '5m'], or a function");
    return () => 0;
  }
  const waits = schedule.map((entry, index) => {
    const ms = parseDuration(entry);
    if (ms === undefined) {
      faults.add(
        `schedule[${index}]`,
        "is no duration: write milliseconds, or a text like '15s' or '5m'",
      );
    } else if (ms > MAX_RETRY_WAIT) {
      faults.add(`schedule[${index}]`, 'must be at most 30 days');
    }
    return ms ?? 0;
  });
  return (attempt) => entryFor(waits, attempt);
}

function entryFor(waits: readonly number[], attempt: number): number {
  return waits[Math.min(attempt, waits.length) - 1]!;
}

function retryUnlessRefused(
  retryIf: NonNullable<WebhookRetryOptions['retryIf']>,
): NonNullable<RetryPolicy['retryIf']> {
  return (result) => orUndefined(() => retryIf(result)) ?? true;
}

/** What the application's function answers; nothing where it throws, or answers later than it was asked. */
function orUndefined<T>(produce: () => T): T | undefined {
  try {
    const value = produce();
    if (!isThenable(value)) return value;
    // Unheard, its rejection would end the process.
    Promise.resolve(value).catch(() => {});
    return undefined;
  } catch {
    return undefined;
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}
