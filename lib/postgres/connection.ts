import { inTime, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { Database, Row, RunStatement } from './database.js';
import { databaseFailure } from './database-failure.js';
import { requireSameDatabase } from './database-identity.js';
import { SchemaMigrator } from './migrations/schema.migrator.js';

/** A statement, and its values: strings, numbers, booleans and `null`, which every driver sends alike. */
export type Query = readonly [statement: string, values: readonly unknown[]];

/** Milliseconds for a step of the schema, which may wait for another process that runs it. */
const MIGRATION_TIMEOUT = 60_000;

/**
 * The database of a queue or a store, used within a time limit.
 *
 * Every failure is a {@link WebhookStoreError}, `store_unavailable` or `schema_behind`.
 */
export abstract class Connection {
  protected constructor(
    /** The subject of error messages: 'The replay store'. */
    private readonly subject: string,
    readonly schema: string,
    readonly clock: WebhookClock,
    /** Milliseconds; `undefined` for no limit. */
    readonly timeout: number | undefined,
  ) {}

  /** The server, for messages. */
  abstract get server(): string;

  abstract open(): Promise<Database>;

  /** As {@link open}, when a transaction of the caller may hold the last connection of the pool. */
  protected async openInTransaction(): Promise<Database> {
    return this.open();
  }

  /** Runs one statement outside any transaction. */
  async query(...query: Query): Promise<readonly Row[]> {
    return this.using(async (database) => database.query(...query));
  }

  /** As {@link query}, for a statement that searches for its values: no string in PostgreSQL contains NUL, so it finds nothing. */
  async search(...query: Query): Promise<readonly Row[]> {
    const [, values] = query;
    const isPossible = !values.some((value) => typeof value === 'string' && value.includes('\0'));
    return isPossible ? this.query(...query) : [];
  }

  /**
   * Runs statements in a transaction of the caller, with a deadline for all of them.
   *
   * @param own - checks that the transaction is of this database; see {@link requireSameDatabase}
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   */
  async joining<T>(
    tx: unknown,
    work: (run: RunStatement) => Promise<T>,
    own?: Parameters<typeof requireSameDatabase>[3],
  ): Promise<T> {
    const database = await this.openInTransaction();
    // Once the call has ended, at its deadline, it runs no further statement, which could follow a rollback.
    let hasEnded = false;
    const join = async (): Promise<T> => {
      const run = await database.join(tx);
      const runInTime: RunStatement = async (...query) => {
        if (hasEnded) throw new Error('transaction is closed');
        return run(...query);
      };
      if (own !== undefined) await requireSameDatabase(tx as object, runInTime, database.own, own);
      return work(runInTime);
    };
    return this.reporting(async () =>
      this.inTime(join).finally(() => {
        hasEnded = true;
      }),
    );
  }

  /** @param timeouts - how many timeouts the work may take */
  async inTime<T>(work: () => Promise<T>, timeouts = 1): Promise<T> {
    if (this.timeout === undefined) return work();
    const makeError = (): Error => new Error('timeout expired');
    return inTime(this.clock, timeouts * this.timeout, work, makeError);
  }

  async reporting<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      if (cause instanceof WebhookDeliveryError) throw cause;
      throw databaseFailure(this.subject, cause, this.server);
    }
  }

  protected async using<T>(work: (database: Database) => Promise<T>): Promise<T> {
    return this.reporting(async () => work(await this.open()));
  }

  protected migratorOf(database: Database): SchemaMigrator {
    const limit = this.timeout === undefined ? undefined : MIGRATION_TIMEOUT;
    return new SchemaMigrator(async (...query) => database.query(...query, limit), this.schema);
  }
}

/**
 * Deletes rows until a batch has fewer than `least`.
 *
 * @param deleteBatch - returns a row with the number of deleted ones as `gone`
 * @returns how many
 */
export async function deleteInBatches(
  least: number,
  deleteBatch: () => Promise<readonly Row[]>,
): Promise<number> {
  for (let deleted = 0; ;) {
    const [row] = await deleteBatch();
    const gone = Number(row!['gone']);
    deleted += gone;
    if (gone < least) return deleted;
  }
}
