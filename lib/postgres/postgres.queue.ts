import type { Pool } from 'pg';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { readOptions } from '../options/read-options.js';
import * as option from '../options/rules.js';
import {
  Database,
  isPool,
  optionsOf,
  type PostgresPool,
  warnOfMissingTimeouts,
} from './database.js';
import { describeServer } from './database-failure.js';
import { DatabaseQueue } from './database.queue.js';
import type { QueueHost } from './queue-connection.js';
import {
  DATABASE_QUEUE,
  type DatabaseQueueOptions,
  resolveDatabaseQueueOptions,
} from './queue-options.js';
import { SCHEMA } from './sql-text.js';

/** Set either `connectionString` or `pool`. */
export interface PostgresQueueOptions extends DatabaseQueueOptions {
  /** `postgresql://user:password@host:5432/database`. The queue opens a pool of its own, and closes it when it stops. */
  readonly connectionString?: string | undefined;
  /** A `Pool` of node-postgres, which the application closes. Set its `query_timeout` and `connectionTimeoutMillis`. */
  readonly pool?: PostgresPool | undefined;
  /** The schema of its tables; default `webhooks`. */
  readonly schema?: string | undefined;
  /**
   * Whether start-up creates the tables and brings them up to date; default `true`. With `false`, run
   * `npx nestjs-webhook-token migrate` as a step of the deployment.
   */
  readonly migrate?: boolean | undefined;
}

const OPTIONS = option.object<PostgresQueueOptions>()(
  {
    ...DATABASE_QUEUE,
    connectionString: option.optional(
      option.rule<string>(
        (value) => typeof value === 'string' && /^postgres(ql)?:\/\//.test(value),
        'must start with postgresql:// or postgres://',
      ),
    ),
    pool: option.optional(
      option.rule<PostgresPool>(isPool, 'must be a Pool of pg: new Pool({ connectionString })'),
    ),
    schema: SCHEMA,
    migrate: option.optional(option.flag, true),
  },
  {
    form: 'an object: { connectionString } or { pool }',
    across({ connectionString, pool }, at) {
      at.require(
        at.has('connectionString', 'pool') ||
          (connectionString === undefined) !== (pool === undefined),
        '',
        'set either connectionString or pool; is the environment variable set?',
      );
      at.require(
        pool === undefined || optionsOf(pool)?.['binary'] !== true,
        'pool',
        'must not have the option binary, with which columns arrive as bytes; pass a Pool without it',
      );
    },
  },
);

/** Connections of a pool that the queue opens. */
const POOL_SIZE = 10;

/** A PostgreSQL server. */
class ServerHost implements QueueHost {
  readonly shared = true;
  readonly migrates: boolean;
  readonly server: string;
  readonly schema: string;
  private owned: Pool | undefined;

  constructor(
    private readonly options: option.Read<typeof OPTIONS>,
    private readonly clock: WebhookClock,
  ) {
    this.schema = options.schema;
    this.migrates = options.migrate;
    this.server = describeServer(options.connectionString ?? options.pool);
  }

  async open(timeout: number | undefined): Promise<Database> {
    const { pool } = this.options;
    if (pool !== undefined) warnOfMissingTimeouts('PostgresQueue', pool);
    return new Database(pool ?? (await this.openPool()), this.clock, timeout);
  }

  async close(): Promise<void> {
    const { owned } = this;
    this.owned = undefined;
    await owned?.end();
  }

  private async openPool(): Promise<Pool> {
    const { default: pg } = await import('pg');
    this.owned = new pg.Pool({
      connectionString: this.options.connectionString!,
      max: POOL_SIZE,
      connectionTimeoutMillis: this.options.timeout,
      keepAlive: true,
      application_name: 'nestjs-webhook-token',
    });
    // Without a listener, an idle connection that breaks would end the process.
    this.owned.on('error', () => {});
    return this.owned;
  }
}

/**
 * Stores deliveries in PostgreSQL: shared by any number of processes, as durable as the database, and able to join a
 * transaction of the caller.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   publisher: { …, queue: new PostgresQueue({ connectionString: process.env.DATABASE_URL }) },
 * })
 * ```
 *
 * Pass as `tx` a Client of node-postgres with an open transaction, an EntityManager or QueryRunner of TypeORM, the `tx` of
 * Prisma or Drizzle, or a Transaction of Kysely or Knex, on the same database. Deliveries recorded in it are attempted
 * after its commit.
 */
export class PostgresQueue extends DatabaseQueue {
  /** @throws {@link WebhookConfigurationError} */
  constructor(options: PostgresQueueOptions) {
    const read = readOptions(OPTIONS, options, 'PostgresQueue');
    const resolved = resolveDatabaseQueueOptions(read);
    super(new ServerHost(read, resolved.clock), resolved);
  }
}
