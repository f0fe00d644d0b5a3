import { parseDuration, type Duration } from '../clock/duration.js';
import {
  duration,
  either,
  list,
  optional,
  type Read,
  rule,
  unchecked,
  whole,
} from '../options/rules.js';

/** When a failed delivery is attempted again. */
export interface RetryScheduleOptions {
  /** Attempts in total, 1 to 1000; default: as many as the default schedule has. */
  readonly attempts?: number | undefined;
  /**
   * The wait before attempt 1, 2, …, each of at most 30 days; the last repeats. Or a synchronous function of the
   * attempt's number. If it throws, or returns a promise or no duration, the default wait is used; more than 30 days
   * count as 30.
   */
  readonly schedule?: readonly Duration[] | ((attempt: number) => Duration) | undefined;
  /** How much a wait may deviate from the schedule, from 0 to 1; default 0.2, which is ±20 %. */
  readonly jitter?: number | undefined;
}

/** A checked retry schedule with defaults; durations in milliseconds. */
export interface RetrySchedule {
  /** Attempts in total. */
  readonly attempts: number;
  /** Milliseconds before attempt `n`, `n` from 1. */
  readonly waitBefore: (attempt: number) => number;
  /** How much a wait may deviate from the schedule: 0.2 is ±20 %. */
  readonly jitter: number;
}

const MAX_WAIT = '30d';
const MAX_WAIT_MS = parseDuration(MAX_WAIT)!;

export const WAITS = list(
  duration({ min: 0, max: MAX_WAIT }),
  "must be a list of durations such as ['0s', '5s', '5m'], or a function",
  { min: 1 },
);

export const JITTER = rule<number>(
  (jitter) => typeof jitter === 'number' && jitter >= 0 && jitter <= 1,
  'must be a number from 0 to 1; 0.2 lets a wait deviate by 20 % from the schedule',
);

/** The rules of {@link RetryScheduleOptions}, for the options that extend them. */
export const RETRY_SCHEDULE = {
  attempts: optional(whole(1, 1_000)),
  schedule: optional(
    either(
      (schedule) => typeof schedule === 'function',
      unchecked<(attempt: number) => Duration>(),
      WAITS,
    ),
  ),
  jitter: optional(JITTER, 0.2),
};

/**
 * Fills in the defaults of a retry schedule.
 *
 * @param defaults - milliseconds before the first, second, … attempt
 */
export function resolveRetrySchedule(
  options: {
    readonly [Name in keyof typeof RETRY_SCHEDULE]?: Read<(typeof RETRY_SCHEDULE)[Name]>;
  } = {},
  defaults: readonly number[],
): RetrySchedule {
  const { attempts = defaults.length, schedule = defaults, jitter = 0.2 } = options;
  // An invalid result of the function for one attempt must not stop the delivery.
  const waitBefore =
    typeof schedule === 'function'
      ? (attempt: number) =>
          Math.min(
            parseDuration(callSafely(() => schedule(attempt))) ?? entryFor(defaults, attempt),
            MAX_WAIT_MS,
          )
      : (attempt: number) => entryFor(schedule, attempt);
  return { attempts, jitter, waitBefore };
}

/**
 * Milliseconds to wait before an attempt, with jitter.
 *
 * @param random - in [0, 1)
 */
export function spreadWait(schedule: RetrySchedule, attempt: number, random: number): number {
  return spread(schedule.waitBefore(attempt), schedule.jitter, random);
}

export function spread(wait: number, jitter: number, random: number): number {
  return wait * (1 + jitter * (2 * random - 1));
}

function entryFor(waits: readonly number[], attempt: number): number {
  return waits[Math.min(attempt, waits.length) - 1]!;
}

/** Calls a function of the application; returns `undefined` if it throws or returns a promise. */
export function callSafely<T>(produce: () => T): T | undefined {
  try {
    const value = produce();
    if (!isThenable(value)) return value;
    // An unhandled rejection would end the process.
    Promise.resolve(value).catch(() => {});
    return undefined;
  } catch {
    return undefined;
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/** Milliseconds. */
export const FIRST_WAIT_AFTER_THROW = 1_000;
const LONGEST_WAIT_AFTER_THROW = 300_000;

/** Milliseconds until the next run after the handler threw. @param throws - how often in a row it threw before */
export function waitAfterThrow(throws: number): number {
  return Math.min(FIRST_WAIT_AFTER_THROW * 2 ** Math.min(throws, 16), LONGEST_WAIT_AFTER_THROW);
}
