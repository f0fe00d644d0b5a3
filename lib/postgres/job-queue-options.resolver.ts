import { SystemClock } from '../clock/system-clock.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { ConfigurationFaults } from '../errors/configuration-faults.js';
import { resolveConcurrency, type QueueConcurrency } from '../queue/queue-concurrency.js';
import type { JobDeliveryQueueOptions } from './job-delivery-queue-options.interface.js';

/** Every option, checked; durations in milliseconds. */
export interface ResolvedJobQueueOptions extends QueueConcurrency {
  readonly keepDelivered: number;
  readonly lease: number;
  readonly pollInterval: number;
  readonly clock: WebhookClock;
}

/** Milliseconds. */
const DEFAULT_KEEP = 96 * 3_600_000;
const DEFAULT_LEASE = 30_000;
/** The shortest heartbeat that pg-boss takes. */
const LEAST_LEASE = 10_000;
const DEFAULT_POLL = 1_000;
const LEAST_POLL = 100;

export function resolveJobQueueOptions(
  options: JobDeliveryQueueOptions,
  faults: ConfigurationFaults,
): ResolvedJobQueueOptions {
  const keepDelivered = faults.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP);
  const lease = faults.duration('lease', options.lease, DEFAULT_LEASE);
  faults.require(lease >= LEAST_LEASE, 'lease', "must be at least '10s'");
  const pollInterval = faults.duration('pollInterval', options.pollInterval, DEFAULT_POLL);
  faults.require(pollInterval >= LEAST_POLL, 'pollInterval', "must be at least '100ms'");
  return {
    ...resolveConcurrency(options, faults),
    keepDelivered,
    lease,
    pollInterval,
    clock: options.clock ?? new SystemClock(),
  };
}
