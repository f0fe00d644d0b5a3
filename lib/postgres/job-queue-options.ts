import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { type QueueConcurrency, resolveConcurrency } from '../queue/lane-slots.js';

/** What a queue on PostgreSQL and an embedded one have in common. */
export interface JobQueueOptions {
  /**
   * What the queue is called in its database; default `'webhook-deliveries'`. One database serves several queues, as one of a publisher
   * and one of a receiver, when each has a name of its own.
   */
  readonly name?: string | undefined;
  /** Attempts that this process runs at once; default 50. */
  readonly concurrency?: number | undefined;
  /** Those of them that go to one endpoint, or one origin; default a quarter of `concurrency`, at least 1. */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long a delivered one is known by its id, in whole seconds; default `'96h'`. */
  readonly keepDelivered?: Duration | undefined;
  /**
   * How long after a crash of its process an attempt runs again, in whole seconds; default `'30s'`, at
   * least `'10s'`. It is renewed while an attempt runs, however long that takes.
   */
  readonly lease?: Duration | undefined;
  /** How often an idle process looks for what others have recorded; default `'1s'`, at least `'100ms'`. */
  readonly pollInterval?: Duration | undefined;
  /** Default: the machine's clock, which must agree with that of the other processes to within seconds. */
  readonly clock?: WebhookClock | undefined;
}

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
  options: JobQueueOptions,
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
