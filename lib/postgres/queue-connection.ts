import { inTime } from '../clock/webhook-clock.js';
import { WebhookDeliveryError, WebhookStoreError } from '../errors/webhook.error.js';
import { queueStopped } from '../queue/webhook-queue.js';
import type { Database, Row, RunStatement } from './database.js';
import { databaseFailure } from './database-failure.js';
import { OwnDatabase, warnOfSkew } from './database-identity.js';
import type { Query } from './delivery-statements.js';
import { SchemaMigrator } from './migrations/schema.migrator.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

/** Milliseconds that `enqueue` in a transaction waits until the queue is open. */
const TIME_TO_OPEN = 5_000;
/** Milliseconds for a step of the schema, which may wait for another process that runs it. */
const MIGRATION_TIMEOUT = 60_000;
/** A statement may take this part of a lease, so that an outcome can be written again in time over another connection. */
const STATEMENTS_PER_LEASE = 3;

/** A lock may take this part of the timeout of a call. */
const LOCKS_PER_TIMEOUT = 0.8;

/** Opens and closes the database of a queue, and knows the transactions of its drivers. */
export interface QueueHost {
  /** Whether other processes may use the same deliveries. */
  readonly shared: boolean;
  readonly schema: string;
  /** The server, for messages. */
  readonly server: string;
  /** Whether start-up may change the schema. */
  readonly migrates: boolean;
  /** @throws the error of the driver */
  open(): Promise<Database>;
  /** Closes what `open` has opened, and leaves the application's own pool open. */
  close(): Promise<void>;
  /**
   * Wraps a transaction of the caller.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` if it is not a transaction
   */
  join(tx: unknown): RunStatement;
}

interface OpenDatabase {
  readonly database: Database;
  /** Its identity, for transactions of the caller. */
  readonly own: OwnDatabase;
}

/** The database of a queue: opened once, by its first use, and used within a time limit. */
export class QueueConnection {
  /** Milliseconds; `undefined` for an embedded database, whose statements wait for transactions of the application. */
  readonly timeout: number | undefined;
  private opening: Promise<OpenDatabase> | undefined;
  private isOpen = false;
  private isClosed = false;

  constructor(
    private readonly host: QueueHost,
    private readonly options: ResolvedDatabaseQueueOptions,
  ) {
    const { lease, timeout } = options;
    this.timeout = host.shared ? Math.min(timeout, lease / STATEMENTS_PER_LEASE) : undefined;
  }

  /**
   * Opens the database once. A connection that is lost later is replaced by the pool.
   *
   * @throws {@link WebhookDeliveryError} `shutting_down` after {@link close}
   */
  async open(): Promise<OpenDatabase> {
    if (this.isClosed) throw queueStopped();
    this.opening ??= this.openHost().catch((error: unknown) => {
      this.opening = undefined;
      throw error;
    });
    return this.opening;
  }

  /** Opening takes a connection. If transactions hold every connection of the pool, they would wait for it forever. */
  async openInTransaction(): Promise<OpenDatabase> {
    if (this.isOpen) return this.open();
    const makeError = (): WebhookStoreError =>
      new WebhookStoreError(
        'store_unavailable',
        `The delivery queue is still being opened in ${this.host.server}: its pool may have no free connection. ` +
          'Use the queue once before the first transaction, as the start of an application does, or pass it a pool of its own.',
      );
    const open = async (): Promise<OpenDatabase> => this.reporting(async () => this.open());
    return inTime(this.options.clock, TIME_TO_OPEN, open, makeError);
  }

  /** Closes the database once its last use has ended, and opens no more. */
  async close(lastUse: Promise<void> | undefined): Promise<void> {
    await lastUse;
    this.isClosed = true;
    if (this.opening === undefined) return;
    await this.opening;
    await this.host.close();
  }

  async query(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return (await this.open()).database.query(this.timeout, statement, values);
  }

  async queryInIndexOrder(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return (await this.open()).database.queryInIndexOrder(this.timeout, statement, values);
  }

  async transaction<T>(work: (run: RunStatement) => Promise<T>): Promise<T> {
    return (await this.open()).database.transaction(this.timeout, work);
  }

  /** Runs a statement that searches for its values: no string in PostgreSQL contains NUL, so it finds nothing. */
  async search([statement, values]: Query): Promise<readonly Row[]> {
    if (values.some((value) => typeof value === 'string' && value.includes('\0'))) return [];
    return this.reporting(async () => this.query(statement, values));
  }

  /** The time for a statement: `null` for the clock of the database. */
  get now(): number | null {
    return this.options.usesDatabaseClock ? null : this.options.clock.now();
  }

  /**
   * `lock_timeout` of a call in a transaction of the caller, whose rollback would wait for the lock too: the server gives up before the
   * deadline of the call. `null` for an embedded database, which has one connection.
   */
  get lockTimeout(): string | null {
    return this.timeout === undefined ? null : String(Math.ceil(this.timeout * LOCKS_PER_TIMEOUT));
  }

  async inTime<T>(timeouts: number, work: () => Promise<T>): Promise<T> {
    if (this.timeout === undefined) return work();
    const makeError = (): Error => new Error('timeout expired');
    return inTime(this.options.clock, timeouts * this.timeout, work, makeError);
  }

  /** @throws {@link WebhookStoreError} for every error of the driver */
  async reporting<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof WebhookDeliveryError) throw error;
      throw databaseFailure('The delivery queue', error, this.host.server);
    }
  }

  private async openHost(): Promise<OpenDatabase> {
    const { host, timeout } = this;
    const database = await host.open();
    try {
      const limit = host.shared ? MIGRATION_TIMEOUT : undefined;
      const migrator = new SchemaMigrator(
        async (statement, values) => database.query(limit, statement, values),
        host.schema,
      );
      if (host.migrates) await migrator.migrate();
      else await migrator.requireCurrent();
      const own = new OwnDatabase(database, timeout);
      await own.identify();
      if (this.options.usesDatabaseClock && host.shared) {
        await warnOfSkew(database, timeout, this.options.clock);
      }
      this.isOpen = true;
      return { database, own };
    } catch (error) {
      // The next call opens it again; without this, the pool and the lock of this attempt would leak.
      await host.close().catch(() => {});
      throw error;
    }
  }
}
