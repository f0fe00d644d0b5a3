import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import * as option from '../options/rules.js';
import { DURABLE_QUEUE, type QueueOptions, withQueueDefaults } from '../queue/queue-options.js';

/** Options of every queue on PostgreSQL, on a server or embedded. */
export interface DatabaseQueueOptions extends QueueOptions {
  /**
   * Name of the queue in its database; default `'webhook-deliveries'`. Queues of one database, such as a publisher's and
   * a receiver's, need different names.
   */
  readonly name?: string | undefined;
  /**
   * How long a delivery is kept with its attempts after it was delivered, and its id is recognised; default `'96h'`. It is
   * then deleted.
   */
  readonly keepDelivered?: Duration | undefined;
  /**
   * How long a dead delivery is kept with its attempts after it was recorded; default: until it is pruned. One that blocks its
   * ordering key is kept until it is redelivered, skipped or pruned.
   */
  readonly keepDead?: Duration | undefined;
  /**
   * Time after a crash of its process until a delivery is attempted again; default `'30s'`, at least `'10s'`. The lease is
   * renewed while an attempt runs, however long that takes.
   */
  readonly lease?: Duration | undefined;
  /** How often an idle process looks for deliveries that others have recorded; default `'1s'`, at least `'100ms'`. */
  readonly pollInterval?: Duration | undefined;
  /**
   * Whether PostgreSQL notifies idle processes of new deliveries (LISTEN and NOTIFY), so that they do not wait for their
   * next poll; default `true`. Each consuming process then keeps one connection; with a pool of only one, it polls instead.
   * Set it to `false` behind a transaction pooler such as PgBouncer with `pool_mode = transaction`, which does not pass
   * notifications on.
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

const NAME = /^[A-Za-z0-9_.-]{1,100}$/;

/** Options of every queue on PostgreSQL; milliseconds. */
export const DATABASE_QUEUE = {
  ...DURABLE_QUEUE,
  name: option.optional(
    option.rule<string>(
      (value) => typeof value === 'string' && NAME.test(value),
      'must be 1 to 100 letters, digits, "_", "-" or "."',
    ),
    'webhook-deliveries',
  ),
  lease: option.optional(option.duration({ min: '10s' }), 30_000),
  pollInterval: option.optional(option.duration({ min: '100ms' }), 1_000),
  notify: option.optional(option.flag, true),
  timeout: option.optional(option.duration(), 5_000),
};

/** Checked options, with defaults filled in; durations in milliseconds. */
export type ResolvedDatabaseQueueOptions = ReturnType<typeof resolveDatabaseQueueOptions>;

export function resolveDatabaseQueueOptions(options: {
  readonly [Name in keyof typeof DATABASE_QUEUE]: option.Read<(typeof DATABASE_QUEUE)[Name]>;
}) {
  const { clock } = options;
  return {
    ...withQueueDefaults(options),
    /** Whether the clock of the database decides what is due. */
    usesDatabaseClock: clock === undefined || clock instanceof SystemClock,
  };
}
