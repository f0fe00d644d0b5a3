import { parseDuration, type Duration } from '../clock/duration.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';

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

const MOST_ATTEMPTS = 1_000;
const DEFAULT_JITTER = 0.2;
/** Milliseconds: 30 days. */
const MAX_WAIT = 30 * 24 * 3_600_000;

/**
 * Checks a retry schedule and fills in the defaults; faults are collected, not thrown.
 *
 * @param defaults - milliseconds before the first, second, … attempt
 */
export function resolveRetrySchedule(
  options: RetryScheduleOptions,
  defaults: readonly number[],
  faults: ConfigurationFaults,
): RetrySchedule {
  const { attempts = defaults.length, jitter = DEFAULT_JITTER } = options;
  faults.require(
    Number.isInteger(attempts) && attempts >= 1 && attempts <= MOST_ATTEMPTS,
    'attempts',
    `must be a whole number from 1 to ${MOST_ATTEMPTS}`,
  );
  faults.require(
    typeof jitter === 'number' && jitter >= 0 && jitter <= 1,
    'jitter',
    'must be a number from 0 to 1; 0.2 lets a wait deviate by 20 % from the schedule',
  );
  return { attempts, jitter, waitBefore: resolveWaits(options.schedule, defaults, faults) };
}

/**
 * Milliseconds to wait before an attempt, with jitter.
 *
 * @param random - in [0, 1)
 */
export function spreadWait(schedule: RetrySchedule, attempt: number, random: number): number {
  return spread(schedule.waitBefore(attempt), schedule.jitter, random);
}

/** Adds jitter to a wait. */
export function spread(wait: number, jitter: number, random: number): number {
  return wait * (1 + jitter * (2 * random - 1));
}

function resolveWaits(
  schedule: RetryScheduleOptions['schedule'],
  defaults: readonly number[],
  faults: ConfigurationFaults,
): RetrySchedule['waitBefore'] {
  if (schedule === undefined) return (attempt) => entryFor(defaults, attempt);
  if (typeof schedule === 'function') {
    // An invalid result for one attempt must not stop the delivery.
    return (attempt) =>
      Math.min(
        parseDuration(answerOf(() => schedule(attempt))) ?? entryFor(defaults, attempt),
        MAX_WAIT,
      );
  }
  if (!Array.isArray(schedule) || schedule.length === 0) {
    faults.add('schedule', "must be a list of durations such as ['0s', '5s', '5m'], or a function");
    return () => 0;
  }
  const waits = schedule.map((entry, index) => {
    const ms = parseDuration(entry);
    if (ms === undefined) {
      faults.add(`schedule[${index}]`, "must be a duration, such as '15s' or 15000");
    } else if (ms > MAX_WAIT) {
      faults.add(`schedule[${index}]`, 'must be at most 30 days');
    }
    return ms ?? 0;
  });
  return (attempt) => entryFor(waits, attempt);
}

function entryFor(waits: readonly number[], attempt: number): number {
  return waits[Math.min(attempt, waits.length) - 1]!;
}

/** Calls a function of the application; returns `undefined` if it throws or returns a promise. */
export function answerOf<T>(produce: () => T): T | undefined {
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
