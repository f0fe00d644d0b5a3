import type { ConfigurationFaults } from '../../options/configuration-faults.js';
import type { WebhookQueue } from '../../queue/webhook-queue.js';
import { resolveRetrySchedule, type RetrySchedule } from '../../queue/retry-schedule.js';
import type { WebhookReceiverOptions } from '../receiver-options.interface.js';

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
export function resolveQueuedEvents(
  { acknowledge = 'handled', queue, retry, path }: WebhookReceiverOptions,
  faults: ConfigurationFaults,
): QueuedEvents | undefined {
  if (acknowledge === 'handled') {
    const remedy = "only applies with acknowledge: 'queued'; set that, or remove this option";
    faults.require(queue === undefined, 'queue', remedy);
    faults.require(retry === undefined, 'retry', remedy);
    return undefined;
  }
  faults.require(
    path !== undefined,
    'path',
    "is required with acknowledge: 'queued', because only events that arrive on this path are queued",
  );
  const schedule = resolveRetrySchedule(retry ?? {}, DEFAULT_RUNS, faults.below('retry'));
  if (queue === undefined) {
    faults.add(
      'queue',
      "is required with acknowledge: 'queued': set it to a durable WebhookQueue that serves only this receiver, such as a PgBossQueue",
    );
    return undefined;
  }
  return { queue, retry: schedule };
}
