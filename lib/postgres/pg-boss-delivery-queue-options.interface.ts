import type { PgBoss } from 'pg-boss';
import type { JobDeliveryQueueOptions } from './job-delivery-queue-options.interface.js';

/** The part of a `Pool` of node-postgres that is used. */
export interface PostgresPool {
  /** As node-postgres has it. */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/** Exactly one of `connectionString`, `pool` and `boss` says where the deliveries are kept. */
export interface PgBossDeliveryQueueOptions extends JobDeliveryQueueOptions {
  /** `postgresql://user:password@host:5432/database`; a pool of its own is opened, and closed when the queue stops. */
  readonly connectionString?: string | undefined;
  /** A `Pool` of node-postgres; closing it stays the application's. */
  readonly pool?: PostgresPool | undefined;
  /** A pg-boss of the application's; it is started where that has not been done, and stopping it stays the application's. */
  readonly boss?: PgBoss | undefined;
  /** The schema of pg-boss; default `webhooks`, and with `boss` its own default `pgboss`. */
  readonly schema?: string | undefined;
  /**
   * Whether start-up creates the schema, and brings it up to date; default `true`. With `false` it must be as this version
   * of pg-boss has it: `npx pg-boss migrate`.
   */
  readonly migrate?: boolean | undefined;
}
