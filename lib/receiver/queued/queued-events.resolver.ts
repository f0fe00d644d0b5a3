import type { ConfigurationFaults } from '../../options/configuration-faults.js';
import type { WebhookQueue } from '../../queue/webhook-queue.js';
import { resolveRetrySchedule, type RetrySchedule } from '../../queue/retry-schedule.js';
import type { WebhookReceiverOptions } from '../receiver-options.interface.js';

/** Where a receiver keeps its events until they are handled, and how often it tries. */
export interface QueuedEvents {
  readonly queue: WebhookQueue;
  readonly retry: RetrySchedule;
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/**
 * Milliseconds before the first, second, … run: 10 runs over 41 h 42 min. The first are close together, as what fails here is
 * mostly a database or a neighbour that restarts; the last leave a working day to mend a handler.
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

/** @returns `undefined` where events are handled before they are acknowledged */
export function resolveQueuedEvents(
  { acknowledge = 'handled', queue, retry, path }: WebhookReceiverOptions,
  faults: ConfigurationFaults,
): QueuedEvents | undefined {
  if (acknowledge === 'handled') {
    const remedy = "has a meaning with acknowledge: 'queued' only: set that, or remove it";
    faults.require(queue === undefined, 'queue', remedy);
    faults.require(retry === undefined, 'retry', remedy);
    return undefined;
  }
  faults.require(
    path !== undefined,
    'path',
    "must be set with acknowledge: 'queued': only what comes in by the receiver's own path is queued, a route's method is its handler",
  );
  const schedule = resolveRetrySchedule(retry ?? {}, DEFAULT_RUNS, faults.below('retry'));
  if (queue === undefined) {
    faults.add(
      'queue',
      "must be given with acknowledge: 'queued': a durable WebhookQueue of its own, as PgBossQueue",
    );
    return undefined;
  }
  return { queue, retry: schedule };
}
