import type { Read } from '../../options/rules.js';
import type { WebhookQueue } from '../../queue/webhook-queue.js';
import { resolveRetrySchedule, type RetrySchedule } from '../../queue/retry-schedule.js';
import type { RECEIVER } from '../receiver-options.rules.js';

/** The queue of a receiver that acknowledges before it handles, and its retry schedule. */
export interface QueuedEvents {
  readonly queue: WebhookQueue;
  readonly retry: RetrySchedule;
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/**
 * Milliseconds before the first, second, … run: 10 runs over 41 h 42 min. The first ones are close together, because most failures are
 * a restarting database or service; the last ones leave a working day to fix a handler.
 */
const DEFAULT_RUNS: readonly number[] = [
  0,
  5 * SECOND,
  30 * SECOND,
  2 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  24 * HOUR,
];

/** @returns `undefined` if events are handled before they are acknowledged */
export function resolveQueuedEvents({
  queue,
  retry,
}: Read<typeof RECEIVER>): QueuedEvents | undefined {
  return queue && { queue, retry: resolveRetrySchedule(retry, DEFAULT_RUNS) };
}
