// Not the global one, which fake timers of Jest and Vitest replace.
import { setImmediate } from 'node:timers';

/**
 * Waits for work, and no longer than a deadline, by the clock or in real time: a test clock may stand still. Then the work goes on
 * unwatched.
 *
 * @param deadline - epoch milliseconds
 */
export async function waitUntil(
  clock: WebhookClock,
  deadline: number,
  work: Promise<unknown> | undefined,
): Promise<void> {
  const wait = deadline - clock.now();
  const cancels: CancelWake[] = [];
  const late = new Promise<void>((resolve) => {
    for (const each of [clock, SYSTEM]) {
      cancels.push(each.wakeAt(each.now() + wait, resolve));
    }
  });
  try {
    await Promise.race([work, late]);
  } finally {
    for (const cancel of cancels) cancel();
  }
}

/**
 * Resolves with the result of work that ends in time, and rejects if it does not; a later result is dropped.
 *
 * @param ms - milliseconds it may take
 * @param makeError - what is thrown then
 */
export function inTime<T>(
  clock: WebhookClock,
  ms: number,
  work: () => T | Promise<T>,
  makeError: () => Error,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const working = Promise.resolve(work());
    // After a stall of the process, a result that has arrived is still unread: it goes first.
    const expire = (): void => void setImmediate(() => reject(makeError()));
    const cancel = clock.wakeAt(clock.now() + ms, expire);
    working.finally(cancel).then(resolve, reject);
  });
}

/**
 * Resolves with the result of work that ends before the signal is aborted, and rejects if it does not; a later result is dropped.
 *
 * @param makeError - what is thrown then
 */
export function untilAborted<T>(
  work: Promise<T>,
  signal: AbortSignal,
  makeError: () => Error,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(makeError());
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop);
    work.finally(() => signal.removeEventListener('abort', stop)).then(resolve, reject);
  });
}

/**
 * Does background work in rounds, the first one after `interval` milliseconds.
 *
 * @param work - resolves with the milliseconds until the next round, by default `interval`, also if it rejects
 * @returns a function that starts no further round
 */
export function repeat(
  clock: WebhookClock,
  interval: number,
  work: () => Promise<number | void>,
): CancelWake {
  let cancel: CancelWake = () => {};
  let isCanceled = false;
  const schedule = (wait: number): void => {
    if (!isCanceled) cancel = clock.wakeAt(clock.now() + wait, () => void runRound());
  };
  const runRound = async (): Promise<void> => {
    const next = await work().catch(() => interval);
    schedule(next ?? interval);
  };
  schedule(interval);
  return () => {
    isCanceled = true;
    cancel();
  };
}

/**
 * Does background work in rounds of batches, so that a large one leaves time for other work: while there is more, it rests after each
 * batch for as long as that took.
 *
 * @param work - resolves with whether there is more
 * @returns a function that starts no further batch
 */
export function repeatInBatches(
  clock: WebhookClock,
  interval: number,
  work: () => Promise<boolean>,
): CancelWake {
  return repeat(clock, interval, async () => {
    const start = clock.now();
    return (await work()) ? Math.min(interval, clock.now() - start) : interval;
  });
}

/** Milliseconds. */
const LONGEST_REST = 600_000;

/**
 * How long to rest after background work, so that it takes at most 1 part in `parts` of the time. At most ten minutes, since work
 * during which the machine was suspended or its clock was set seems to have taken long.
 *
 * @param took - milliseconds
 * @returns milliseconds
 */
export function restAfter(took: number, parts: number): number {
  return Math.min(parts * took, LONGEST_REST);
}

/** Cancels a wake-up; calling it twice, or too late, does nothing. */
export type CancelWake = () => void;

/** The time and wake-ups. This package has no other source of either, so that tests can control both. */
export abstract class WebhookClock {
  /** Milliseconds since the epoch. */
  abstract now(): number;

  /**
   * Calls `wake` once at this time, or soon after this call if the time has passed; never within the call.
   *
   * @param at - milliseconds since the epoch
   */
  abstract wakeAt(at: number, wake: () => void): CancelWake;
}

/** setTimeout fires at once above this many milliseconds, about 24.8 days. */
export const LONGEST_TIMEOUT = 2 ** 31 - 1;

/** Milliseconds after which a timer compares with the clock: timers stop while the machine is suspended. */
const LONGEST_SLEEP = 60_000;

/** The machine's clock. Its timers never keep the process alive by themselves. */
export class SystemClock extends WebhookClock {
  override now(): number {
    return Date.now();
  }

  override wakeAt(at: number, wake: () => void): CancelWake {
    let timer: NodeJS.Timeout;
    let rest = Infinity;
    const arm = (): void => {
      // A clock that is set back must not extend it.
      rest = Math.min(rest, at - Date.now());
      const sleep = Math.max(0, Math.min(rest, LONGEST_SLEEP));
      rest -= sleep;
      timer = setTimeout(rest > 0 ? arm : wake, sleep);
      timer.unref();
    };
    arm();
    return () => clearTimeout(timer);
  }
}

const SYSTEM = new SystemClock();
