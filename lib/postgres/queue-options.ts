import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { type QueueConcurrency, resolveConcurrency } from '../queue/lane-slots.js';

/** Options of every queue on PostgreSQL, on a server or embedded. */
export interface DatabaseQueueOptions {
  /**
   * Name of the queue in its database; default `'webhook-deliveries'`. Queues of one database, such as a publisher's and
   * a receiver's, need different names.
   */
  readonly name?: string | undefined;
  /** Attempts that this process makes at the same time; default 50. */
  readonly concurrency?: number | undefined;
  /** How many of them may go to one endpoint or origin; default a quarter of `concurrency`, at least 1. */
  readonly concurrencyPerDestination?: number | undefined;
  /**
   * How long a delivery is kept with its attempts after it was delivered, and its id is recognised; default `'96h'`. It is
   * then deleted. Dead deliveries are kept until they are pruned.
   */
  readonly keepDelivered?: Duration | undefined;
  /**
   * Time after a crash of its process until a delivery is attempted again; default `'30s'`, at least `'10s'`. The lease is
   * renewed while an attempt runs, however long that takes.
   */
  readonly lease?: Duration | undefined;
  /** How often an idle process looks for deliveries that others have recorded; default `'1s'`, at least `'100ms'`. */
  readonly pollInterval?: Duration | undefined;
  /**
   * Whether PostgreSQL notifies idle processes of new deliveries (LISTEN and NOTIFY), so that they do not wait for their
   * next poll; default `true`. Each consuming process then keeps one connection. Set it to `false` behind a transaction
   * pooler such as PgBouncer with `pool_mode = transaction`, which does not pass notifications on.
   */
  readonly notify?: boolean | undefined;
  /**
   * Milliseconds or a string: how long the queue waits for a connection, and then for each statement; default `'5s'`. A
   * connection that does not answer in time is destroyed. `enqueue` fails after at most three times as long.
   */
  readonly timeout?: Duration | undefined;
  /** Replaces the clock of the database, for tests; default: due times and leases are by the clock of the database. */
  readonly clock?: WebhookClock | undefined;
}

/** Checked options, with defaults filled in; durations in milliseconds. */
export interface ResolvedDatabaseQueueOptions extends QueueConcurrency {
  readonly name: string;
  readonly keepDelivered: number;
  readonly lease: number;
  readonly pollInterval: number;
  readonly notify: boolean;
  readonly timeout: number;
  readonly clock: WebhookClock;
  /** Whether the clock of the database decides what is due. */
  readonly usesDatabaseClock: boolean;
}

/** Milliseconds. */
const DEFAULT_KEEP = 96 * 3_600_000;
const DEFAULT_LEASE = 30_000;
const MIN_LEASE = 10_000;
const DEFAULT_POLL = 1_000;
const MIN_POLL = 100;
const DEFAULT_TIMEOUT = 5_000;

const DEFAULT_NAME = 'webhook-deliveries';
const NAME = /^[A-Za-z0-9_.-]{1,100}$/;

export function resolveDatabaseQueueOptions(
  options: DatabaseQueueOptions,
  problems: ConfigurationFaults,
): ResolvedDatabaseQueueOptions {
  const { name = DEFAULT_NAME, notify = true, clock } = options;
  problems.require(
    typeof name === 'string' && NAME.test(name),
    'name',
    'must be 1 to 100 letters, digits, "_", "-" or "."',
  );
  const keepDelivered = problems.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP);
  const lease = problems.duration('lease', options.lease, DEFAULT_LEASE);
  problems.require(lease >= MIN_LEASE, 'lease', "must be at least '10s', such as '30s'");
  const pollInterval = problems.duration('pollInterval', options.pollInterval, DEFAULT_POLL);
  problems.require(
    pollInterval >= MIN_POLL,
    'pollInterval',
    "must be at least '100ms', such as '1s'",
  );
  problems.require(typeof notify === 'boolean', 'notify', 'must be a boolean');
  return {
    name,
    ...resolveConcurrency(options, problems),
    keepDelivered,
    lease,
    pollInterval,
    notify,
    timeout: problems.duration('timeout', options.timeout, DEFAULT_TIMEOUT),
    clock: clock ?? new SystemClock(),
    usesDatabaseClock: clock === undefined || clock instanceof SystemClock,
  };
}
