import type { WebhookClock } from './webhook-clock.js';

/**
 * Waits for work, and no longer than a deadline; then the work goes on unwatched.
 *
 * @param deadline - epoch milliseconds
 */
export async function waitUntil(
  clock: WebhookClock,
  deadline: number,
  work: Promise<unknown> | undefined,
): Promise<void> {
  let cancel = (): void => {};
  const late = new Promise<void>((resolve) => {
    cancel = clock.wakeAt(deadline, resolve);
  });
  try {
    await Promise.race([work, late]);
  } finally {
    cancel();
  }
}

/**
 * Gives the result of work that comes in time, and rejects where it does not; what comes later is dropped.
 *
 * @param ms - milliseconds it may take
 * @param makeError - what is thrown then
 */
export async function inTime<T>(
  clock: WebhookClock,
  ms: number,
  work: () => T | Promise<T>,
  makeError: () => Error,
): Promise<T> {
  let cancel = (): void => {};
  const late = new Promise<never>((_resolve, reject) => {
    cancel = clock.wakeAt(clock.now() + ms, () => reject(makeError()));
  });
  try {
    return await Promise.race([work(), late]);
  } finally {
    cancel();
  }
}
