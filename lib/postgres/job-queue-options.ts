import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { type QueueConcurrency, resolveConcurrency } from '../queue/lane-slots.js';

/** Options of every queue on PostgreSQL, on a server or embedded. */
export interface JobQueueOptions {
  /**
   * Name of the queue in its database; default `'webhook-deliveries'`. Queues of one database, such as a publisher's and
   * a receiver's, need different names.
   */
  readonly name?: string | undefined;
  /** Attempts that this process makes at the same time; default 50. */
  readonly concurrency?: number | undefined;
  /** How many of them may go to one endpoint or origin; default a quarter of `concurrency`, at least 1. */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long a delivered delivery is remembered by its id, in whole seconds; default `'96h'`. It is then deleted. */
  readonly keepDelivered?: Duration | undefined;
  /**
   * Time after a crash of its process until a delivery is attempted again, in whole seconds; default `'30s'`, at least
   * `'10s'`. The lease is renewed while an attempt runs, however long that takes.
   */
  readonly lease?: Duration | undefined;
  /** How often an idle process looks for deliveries that others have recorded; default `'1s'`, at least `'100ms'`. */
  readonly pollInterval?: Duration | undefined;
  /**
   * Whether PostgreSQL notifies idle processes of new deliveries (LISTEN and NOTIFY), so that they do not wait for their
   * next poll; default `true`. Each consuming process then has one more connection. Without effect behind a transaction pooler,
   * which does not pass notifications on.
   */
  readonly notify?: boolean | undefined;
  /** Default: the system clock, which must agree with that of the other processes to within seconds. */
  readonly clock?: WebhookClock | undefined;
}

/** Checked options, with defaults filled in; durations in milliseconds. */
export interface ResolvedJobQueueOptions extends QueueConcurrency {
  readonly name: string;
  readonly keepDelivered: number;
  readonly lease: number;
  readonly pollInterval: number;
  readonly notify: boolean;
  readonly clock: WebhookClock;
}

/** Milliseconds. */
const DEFAULT_KEEP = 96 * 3_600_000;
const DEFAULT_LEASE = 30_000;
/** The shortest heartbeat that pg-boss accepts. */
const MIN_LEASE = 10_000;
const DEFAULT_POLL = 1_000;
const MIN_POLL = 100;

const DEFAULT_NAME = 'webhook-deliveries';
/** The names that pg-boss accepts, without those that contain a slash. */
const NAME = /^[A-Za-z0-9_.-]{1,100}$/;

export function resolveJobQueueOptions(
  options: JobQueueOptions,
  faults: ConfigurationFaults,
): ResolvedJobQueueOptions {
  const { name = DEFAULT_NAME } = options;
  faults.require(
    typeof name === 'string' && NAME.test(name),
    'name',
    'must be 1 to 100 letters, digits, "_", "-" or "."',
  );
  const keepDelivered = faults.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP);
  const lease = faults.duration('lease', options.lease, DEFAULT_LEASE);
  faults.require(lease >= MIN_LEASE, 'lease', "must be at least '10s', such as '30s'");
  const pollInterval = faults.duration('pollInterval', options.pollInterval, DEFAULT_POLL);
  faults.require(
    pollInterval >= MIN_POLL,
    'pollInterval',
    "must be at least '100ms', such as '1s'",
  );
  const { notify = true } = options;
  faults.require(typeof notify === 'boolean', 'notify', 'must be a boolean');
  return {
    name,
    ...resolveConcurrency(options, faults),
    keepDelivered,
    lease,
    pollInterval,
    notify,
    clock: options.clock ?? new SystemClock(),
  };
}
