import type { Db, PgBoss } from 'pg-boss';

/** Where the jobs are kept: a pg-boss, with how it is opened, closed and joined. */
export interface BossHost {
  /** Whether other processes may be at the same jobs. */
  readonly shared: boolean;
  /** The schema of pg-boss, as it is written in SQL. */
  readonly schema: string;
  /** The database, for messages; see `describeServer`. */
  readonly server: string;
  /** Whether start-up may change the schema. */
  readonly migrates: boolean;
  /**
   * Opens the database where that is the host's to do, brings its schema up to date and starts pg-boss.
   *
   * @throws what the driver or pg-boss throws
   */
  open(): Promise<PgBoss>;
  /** Closes what `open` has opened. */
  close(): Promise<void>;
  /**
   * Makes a transaction of the caller's usable.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` for what is none
   */
  join(tx: unknown): Db;
}

/** Unquoted, so that PostgreSQL and every tool spell it alike. */
const SCHEMA = /^[a-z_][a-z0-9_]{0,48}$/;

/** What `schema` must be, for a message. */
export const SCHEMA_RULE = 'must be 1 to 49 of a-z, 0-9 and _, and not begin with a digit';

export function isSchemaName(value: unknown): value is string {
  return typeof value === 'string' && SCHEMA.test(value);
}

/** Seconds; the longest interval that pg-boss takes. */
const ONE_DAY = 86_400;

/**
 * How pg-boss runs for deliveries alone: no cron, and its own upkeep, which scans whole tables, once a day. Leases and
 * retention do not depend on it.
 */
export const BOSS_OPTIONS = {
  schedule: false,
  superviseIntervalSeconds: ONE_DAY,
  monitorIntervalSeconds: ONE_DAY,
  maintenanceIntervalSeconds: ONE_DAY,
} as const;
