import type { Db, PgBoss } from 'pg-boss';

/** Opens and closes the pg-boss of a queue, and knows the transactions of its database. */
export interface BossHost {
  /** Whether other processes may use the same jobs. */
  readonly shared: boolean;
  /** The schema of pg-boss. */
  readonly schema: string;
  /** The database, for messages; see `describeServer`. */
  readonly server: string;
  /** Whether start-up may change the schema. */
  readonly migrates: boolean;
  /**
   * Opens the database, brings its schema up to date and starts pg-boss.
   *
   * @throws the error of the driver or of pg-boss
   */
  open(): Promise<PgBoss>;
  /** Closes what `open` has opened, and leaves the application's own pool or pg-boss open. */
  close(): Promise<void>;
  /**
   * Wraps a transaction of the caller.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` if it is not a transaction
   */
  join(tx: unknown): Db;
}

/** Names that need no quotes in SQL. */
const SCHEMA = /^[a-z_][a-z0-9_]{0,48}$/;

/** The rule for `schema`, for an error message. */
export const SCHEMA_RULE = 'must be 1 to 49 of a-z, 0-9 and "_", and not start with a digit';

export function isSchemaName(value: unknown): value is string {
  return typeof value === 'string' && SCHEMA.test(value);
}

/** Seconds; the longest interval that pg-boss takes. */
const ONE_DAY = 86_400;

/**
 * How pg-boss runs for deliveries alone: no cron, and its own upkeep, which scans whole tables, once a day. Leases and
 * retention do not depend on it, and no delivery waits for another one ("flow").
 */
export const BOSS_OPTIONS = {
  schedule: false,
  flowIntervalSeconds: ONE_DAY,
  superviseIntervalSeconds: ONE_DAY,
  monitorIntervalSeconds: ONE_DAY,
  maintenanceIntervalSeconds: ONE_DAY,
} as const;
