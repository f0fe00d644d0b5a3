import { inTime } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { queueStopped } from '../queue/webhook-queue.js';
import { Connection, type Query } from './connection.js';
import type { Database, Row, RunStatement } from './database.js';
import { requireUsualForms, warnOfSkew } from './database-identity.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

/** Milliseconds that `enqueue` in a transaction waits until the queue is open. */
const TIME_TO_OPEN = 5_000;
/** A statement may take this part of a lease, so that an outcome can be written again in time over another connection. */
const STATEMENTS_PER_LEASE = 3;
/** A lock may take this part of the timeout of a call. */
const LOCKS_PER_TIMEOUT = 0.8;

/** Opens and closes the database of a queue. */
export interface QueueHost {
  /** Whether other processes may use the same deliveries. */
  readonly shared: boolean;
  readonly schema: string;
  /** The server, for messages. */
  readonly server: string;
  /** Whether start-up may change the schema. */
  readonly migrates: boolean;
  /**
   * @param timeout - of the database
   * @throws the error of the driver
   */
  open(timeout: number | undefined): Promise<Database>;
  /** Closes what `open` has opened, and leaves the application's own pool open. */
  close(): Promise<void>;
}

/**
 * The database of a queue, opened once, by its first use. An embedded database has no timeout: its statements wait for transactions of
 * the application.
 */
export class QueueConnection extends Connection {
  /** Name of the queue. */
  readonly name: string;
  /** The channel of its notifications. */
  readonly channel: string;
  private opening: Promise<Database> | undefined;
  private isOpen = false;
  private isClosed = false;

  constructor(
    private readonly host: QueueHost,
    readonly options: ResolvedDatabaseQueueOptions,
  ) {
    const { name, lease, timeout, clock } = options;
    const limit = host.shared ? Math.min(timeout, lease / STATEMENTS_PER_LEASE) : undefined;
    super('The delivery queue', host.schema, clock, limit);
    this.name = name;
    this.channel = `${host.schema}_deliveries`;
  }

  override get server(): string {
    return this.host.server;
  }

  /**
   * Opens the database once. A connection that is lost later is replaced by the pool.
   *
   * @throws {@link WebhookDeliveryError} `shutting_down` after {@link close}
   */
  override async open(): Promise<Database> {
    if (this.isClosed) throw queueStopped();
    this.opening ??= this.reporting(async () => this.openHost()).catch((error: unknown) => {
      this.opening = undefined;
      throw error;
    });
    return this.opening;
  }

  protected override async openInTransaction(): Promise<Database> {
    if (this.isOpen) return this.open();
    const makeError = (): WebhookStoreError =>
      new WebhookStoreError(
        'store_unavailable',
        `The delivery queue is still being opened in ${this.server}: its pool may have no free connection. ` +
          'Use the queue once before the first transaction, as the start of an application does, or pass it a pool of its own.',
      );
    return inTime(this.clock, TIME_TO_OPEN, async () => this.open(), makeError);
  }

  /** Closes the database once its last use has ended, and opens no more. */
  async close(lastUse: Promise<void> | undefined): Promise<void> {
    await lastUse;
    this.isClosed = true;
    if (this.opening === undefined) return;
    await this.opening;
    await this.host.close();
  }

  /** As {@link query}, for a statement whose rows are read in the order of an index. */
  async queryInIndexOrder(...query: Query): Promise<readonly Row[]> {
    return this.using(async (database) => database.queryInIndexOrder(...query));
  }

  async transaction<T>(work: (run: RunStatement) => Promise<T>): Promise<T> {
    return this.using(async (database) => database.transaction(work));
  }

  /** The time for a statement: `null` for the clock of the database. */
  get now(): number | null {
    return this.options.usesDatabaseClock ? null : this.clock.now();
  }

  /**
   * `lock_timeout` of a call that waits for locks: the server gives up before the deadline of the call, and reports the lock. The
   * rollback of a transaction of the caller would wait for it too. `null` for an embedded database, which has one connection.
   */
  get lockTimeout(): string | null {
    return this.timeout === undefined ? null : `${Math.ceil(this.timeout * LOCKS_PER_TIMEOUT)}ms`;
  }

  private async openHost(): Promise<Database> {
    const { host } = this;
    const database = await host.open(this.timeout);
    try {
      const migrator = this.migratorOf(database);
      if (host.migrates) await migrator.migrate();
      else await migrator.requireCurrent();
      await requireUsualForms(database);
      await database.own.identify();
      if (this.options.usesDatabaseClock && host.shared) await warnOfSkew(database, this.clock);
      this.isOpen = true;
      return database;
    } catch (error) {
      // The next call opens it again; without this, the pool and the lock of this attempt would leak.
      await host.close().catch(() => {});
      throw error;
    }
  }
}
