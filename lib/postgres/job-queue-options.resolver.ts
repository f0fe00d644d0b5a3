import { SystemClock } from '../clock/system-clock.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { resolveConcurrency, type QueueConcurrency } from '../queue/queue-concurrency.js';
import type { JobDeliveryQueueOptions } from './job-delivery-queue-options.interface.js';

/** Every option, checked; durations in milliseconds. */
export interface ResolvedJobQueueOptions extends QueueConcurrency {
  readonly name: string;
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

const DEFAULT_NAME = 'webhook-deliveries';
/** What pg-boss takes, but for the slash. */
const NAME = /^[A-Za-z0-9_.-]{1,100}$/;

export function resolveJobQueueOptions(
  options: JobDeliveryQueueOptions,
  faults: ConfigurationFaults,
): ResolvedJobQueueOptions {
  const { name = DEFAULT_NAME } = options;
  faults.require(
    typeof name === 'string' && NAME.test(name),
    'name',
    'must be 1 to 100 of letters, digits, _, - and .',
  );
  const keepDelivered = faults.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP);
  const lease = faults.duration('lease', options.lease, DEFAULT_LEASE);
  faults.require(lease >= LEAST_LEASE, 'lease', "must be at least '10s'");
  const pollInterval = faults.duration('pollInterval', options.pollInterval, DEFAULT_POLL);
  faults.require(pollInterval >= LEAST_POLL, 'pollInterval', "must be at least '100ms'");
  return {
    name,
    ...resolveConcurrency(options, faults),
    keepDelivered,
    lease,
    pollInterval,
    clock: options.clock ?? new SystemClock(),
  };
}
