import { parseDuration, type Duration } from '../clock/duration.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';

/** When something that failed is tried again; every option may be left out. */
export interface RetryScheduleOptions {
  /** Attempts in total, 1 to 1000; default: as many as the default schedule has. */
  readonly attempts?: number | undefined;
  /**
   * The wait before attempt 1, 2, …, each of at most 30 days; the last repeats. Or a function of the attempt's
   * number. It must answer synchronously: where it throws, or gives a promise or no duration, the default serves;
   * more than 30 days are taken as 30.
   */
  readonly schedule?: readonly Duration[] | ((attempt: number) => Duration) | undefined;
  /** By how much a wait may differ from the schedule, from 0 to 1; default 0.2, which is ±20 %. */
  readonly jitter?: number | undefined;
}

/** A retry schedule, checked and filled; durations in milliseconds. */
export interface RetrySchedule {
  /** Attempts in total. */
  readonly attempts: number;
  /** Milliseconds before attempt `n`, `n` from 1. */
  readonly waitBefore: (attempt: number) => number;
  /** By how much a wait may differ from the schedule, up or down: 0.2 is ±20 %. */
  readonly jitter: number;
}

const MOST_ATTEMPTS = 1_000;
const DEFAULT_JITTER = 0.2;
/** No schedule puts an attempt off by more than this many milliseconds, 30 days. */
const MAX_WAIT = 30 * 24 * 3_600_000;

/**
 * Checks and fills a retry schedule; faults are collected, not thrown.
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
    'must be a number from 0 to 1: 0.2 lets a wait differ by 20 % from the schedule',
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

/** A wait that differs by up to this part of it, up or down. */
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
    // A schedule that gives nonsense for one attempt must not stop a delivery: the default serves then.
    return (attempt) =>
      Math.min(
        parseDuration(answerOf(() => schedule(attempt))) ?? entryFor(defaults, attempt),
        MAX_WAIT,
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

/** What the application's function answers; nothing where it throws, or answers later than it was asked. */
export function answerOf<T>(produce: () => T): T | undefined {
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
