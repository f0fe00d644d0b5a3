import type { Pool } from 'pg';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { Database, isPool, type PostgresPool, type RunStatement } from './database.js';
import { describeServer } from './database-failure.js';
import { DatabaseQueue } from './database.queue.js';
import type { QueueHost } from './queue-database.js';
import {
  type DatabaseQueueOptions,
  type ResolvedDatabaseQueueOptions,
  resolveDatabaseQueueOptions,
} from './queue-options.js';
import { isSchemaName, SCHEMA_RULE } from './sql-text.js';
import { joinTransaction } from './transactions/join-transaction.js';

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

/** Connections of a pool that the queue opens. */
const POOL_SIZE = 10;

/** A PostgreSQL server. */
class ServerHost implements QueueHost {
  readonly shared = true;
  readonly migrates: boolean;
  readonly server: string;
  readonly join: (tx: unknown) => RunStatement = joinTransaction;
  private owned: Pool | undefined;

  constructor(
    private readonly options: PostgresQueueOptions,
    readonly schema: string,
    private readonly resolved: ResolvedDatabaseQueueOptions,
  ) {
    this.migrates = options.migrate ?? true;
    this.server = describeServer(options.connectionString ?? options.pool);
  }

  async open(): Promise<Database> {
    const { pool } = this.options;
    if (pool !== undefined) warnOfMissingTimeout(pool);
    return new Database(pool ?? (await this.openPool()), this.resolved.clock);
  }

  async close(): Promise<void> {
    const { owned } = this;
    this.owned = undefined;
    await owned?.end();
  }

  private async openPool(): Promise<Pool> {
    const { default: pg } = await import('pg');
    const { timeout } = this.resolved;
    this.owned = new pg.Pool({
      connectionString: this.options.connectionString!,
      max: POOL_SIZE,
      connectionTimeoutMillis: timeout,
      keepAlive: true,
      application_name: 'nestjs-webhook-token',
    });
    // Without a listener, an idle connection that breaks would end the process.
    this.owned.on('error', () => {});
    return this.owned;
  }
}

function warnOfMissingTimeout(pool: object): void {
  const { options } = pool as Partial<Pick<Pool, 'options'>>;
  if (options === undefined || (options.query_timeout ?? 0) > 0) return;
  process.emitWarning(
    'The pool of a PostgresQueue has no query_timeout: if its server vanishes, statements of the application and `publish` ' +
      'with `tx` wait until the operating system closes the connection. Set query_timeout, connectionTimeoutMillis and keepAlive.',
    { code: 'WEBHOOK_POOL_WITHOUT_TIMEOUT' },
  );
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
    const problems = new ConfigurationFaults('PostgresQueue');
    const { connectionString, pool, schema = 'webhooks' } = options;
    problems.require(
      (connectionString === undefined) !== (pool === undefined),
      '',
      'set either connectionString or pool; is the environment variable set?',
    );
    problems.require(
      connectionString === undefined ||
        (typeof connectionString === 'string' && /^postgres(ql)?:\/\//.test(connectionString)),
      'connectionString',
      'must start with postgresql:// or postgres://',
    );
    problems.require(
      pool === undefined || isPool(pool),
      'pool',
      'must be a Pool of pg: new Pool({ connectionString })',
    );
    problems.require(isSchemaName(schema), 'schema', SCHEMA_RULE);
    const resolved = resolveDatabaseQueueOptions(options, problems);
    if (problems.all.length > 0) throw new WebhookConfigurationError(problems.all);
    super(new ServerHost(options, schema, resolved), resolved);
  }
}
