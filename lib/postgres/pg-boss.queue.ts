import type { Client } from 'pg';
import type { Db, PgBoss } from 'pg-boss';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { BOSS_OPTIONS, type BossHost, isSchemaName, SCHEMA_RULE } from './boss-host.js';
import { describeServer } from './database-failure.js';
import { JobQueue } from './job.queue.js';
import { type JobQueueOptions, resolveJobQueueOptions } from './job-queue-options.js';
import { joinTransaction } from './transactions/join-transaction.js';
import { rowsOf } from './transactions/transaction-adapters.js';

/** The members of a `Pool` of node-postgres that are used. */
export interface PostgresPool {
  /** As in node-postgres. */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/** Set exactly one of `connectionString`, `pool` and `boss`. */
export interface PgBossQueueOptions extends JobQueueOptions {
  /** `postgresql://user:password@host:5432/database`. The queue opens a pool of its own, and closes it when it stops. */
  readonly connectionString?: string | undefined;
  /** A `Pool` of node-postgres, which the application closes. */
  readonly pool?: PostgresPool | undefined;
  /** A pg-boss of the application, which stops it. The queue starts it if it is not running. */
  readonly boss?: PgBoss | undefined;
  /** The schema of pg-boss; default `webhooks`, and with `boss` its own default `pgboss`. */
  readonly schema?: string | undefined;
  /**
   * Whether start-up creates the schema and brings it up to date; default `true`. With `false`, run
   * `npx nestjs-webhook-token migrate` before.
   */
  readonly migrate?: boolean | undefined;
}

/** A pg-boss on a PostgreSQL server. */
class ServerBossHost implements BossHost {
  readonly shared = true;
  readonly migrates: boolean;
  readonly server: string;
  readonly join = joinTransaction;
  private owned: PgBoss | undefined;

  constructor(
    private readonly options: PgBossQueueOptions,
    readonly schema: string,
  ) {
    this.migrates = options.migrate ?? true;
    this.server = describeServer(options.connectionString ?? options.pool);
  }

  async open(): Promise<PgBoss> {
    if (this.options.boss !== undefined) return this.options.boss.start();
    try {
      return await this.startBoss();
    } catch (error) {
      if (!isUniqueViolation(error)) throw error;
      // A store may create the same schema at this moment. It exists now, so pg-boss does not create it again.
      return this.startBoss();
    }
  }

  async close(): Promise<void> {
    await this.owned?.stop({ graceful: false });
  }

  private async startBoss(): Promise<PgBoss> {
    this.owned = await this.createBoss();
    try {
      return await this.owned.start();
    } catch (error) {
      await this.close().catch(() => {});
      throw error;
    }
  }

  private async createBoss(): Promise<PgBoss> {
    // Imported here because the stores of this entry point work without pg-boss.
    const { PgBoss } = await import('pg-boss');
    const { connectionString, pool } = this.options;
    const boss = new PgBoss({
      ...BOSS_OPTIONS,
      ...(pool === undefined ? { connectionString: connectionString! } : { db: poolDb(pool) }),
      schema: this.schema,
      migrate: this.migrates,
      createSchema: this.migrates,
      application_name: 'nestjs-webhook-token',
    });
    // The queue meets the same errors itself; without a listener they would end the process.
    boss.on('error', () => {});
    return boss;
  }
}

function isUniqueViolation(error: unknown): boolean {
  return (error as { readonly code?: unknown } | null | undefined)?.code === '23505';
}

function poolDb(pool: PostgresPool): Db {
  const executeSql: Db['executeSql'] = async (text, values) => ({
    rows: rowsOf(await pool.query(text, values)),
  });
  return isConnectable(pool) ? { executeSql, listen: listenBeside(pool) } : { executeSql };
}

/** The members of a Pool of node-postgres that open a connection which does not count among those of the pool. */
interface ConnectablePool {
  readonly Client: new (options: unknown) => Client;
  readonly options: unknown;
}

function isConnectable(pool: object): pool is ConnectablePool {
  const { Client, options } = pool as Partial<ConnectablePool>;
  return typeof Client === 'function' && typeof options === 'object';
}

/** Listens on a connection of its own. If it is lost, {@link JobNotifications} notices and asks for another one. */
function listenBeside({ Client, options }: ConnectablePool): NonNullable<Db['listen']> {
  return async (channel, onNotification, onReconnect) => {
    const client = new Client(options);
    // Without a listener, a lost connection would end the process.
    client.on('error', () => {});
    client.on('notification', ({ payload }) => onNotification(payload ?? ''));
    const close = async (): Promise<void> => client.end();
    try {
      await client.connect();
      await client.query(`LISTEN ${channel}`);
    } catch (error) {
      await close().catch(() => {});
      throw error;
    }
    onReconnect();
    return { close };
  };
}

/**
 * Stores deliveries in PostgreSQL, with pg-boss: shared by any number of processes, as durable as the database, and able to join a
 * transaction of the caller.
 *
 * ```ts
 * WebhookModule.forRoot({
 *   publisher: { …, queue: new PgBossQueue({ connectionString: process.env.DATABASE_URL }) },
 * })
 * ```
 *
 * Pass as `tx` a Client of node-postgres with an open transaction, an EntityManager or QueryRunner of TypeORM, the `tx` of
 * Prisma or Drizzle, or a Transaction of Kysely or Knex, on the same database. Deliveries recorded in it are attempted
 * after its commit.
 */
export class PgBossQueue extends JobQueue {
  /** @throws {@link WebhookConfigurationError} */
  constructor(options: PgBossQueueOptions) {
    const faults = new ConfigurationFaults('PgBossQueue');
    const { connectionString, pool, boss } = options;
    const sources = [connectionString, pool, boss].filter((source) => source !== undefined);
    faults.require(
      sources.length === 1,
      '',
      'set exactly one of connectionString, pool and boss; is the environment variable set?',
    );
    faults.require(
      connectionString === undefined ||
        (typeof connectionString === 'string' && /^postgres(ql)?:\/\//.test(connectionString)),
      'connectionString',
      'must start with postgresql:// or postgres://',
    );
    faults.require(
      pool === undefined || typeof pool.query === 'function',
      'pool',
      'must be a Pool of pg: new Pool({ connectionString })',
    );
    faults.require(
      boss === undefined || typeof boss.createQueue === 'function',
      'boss',
      'must be a PgBoss of pg-boss',
    );
    const schema = options.schema ?? (boss === undefined ? 'webhooks' : 'pgboss');
    faults.require(isSchemaName(schema), 'schema', SCHEMA_RULE);
    const resolved = resolveJobQueueOptions(options, faults);
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    super(new ServerBossHost(options, schema), resolved);
  }
}
