import type { Duration } from '../clock/duration.js';
import { inTime, SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import * as option from '../options/rules.js';
import {
  Database,
  type PostgresClient,
  type PostgresClientSource,
  type Row,
  type RunStatement,
  warnOfMissingTimeouts,
} from './database.js';
import { databaseFailure } from './database-failure.js';
import { OwnDatabase, requireSameDatabase } from './database-identity.js';
import { SchemaMigrator } from './migrations/schema.migrator.js';
import { SCHEMA } from './sql-text.js';
import { runInCall } from './transactions/join-transaction.js';

/** Options of every store on PostgreSQL. All optional. */
export interface PostgresStoreOptions {
  /** The schema of its tables; default `webhooks`. */
  readonly schema?: string | undefined;
  /** Time that a statement may take before the store counts as unavailable. */
  readonly timeout?: Duration | undefined;
  /** Default: the system clock. */
  readonly clock?: WebhookClock | undefined;
}

export const STORE = {
  schema: SCHEMA,
  timeout: option.optional(option.duration()),
  clock: option.optional(option.CLOCK),
};

/** A kind of store, for messages, and its default timeout. */
export interface StoreDescription {
  /** The class, for errors in its options. */
  readonly name: string;
  /** The subject of an error message: 'The replay store'. */
  readonly subject: string;
  /** Milliseconds. */
  readonly timeout: number;
}

type StoreOptions = { readonly [Name in keyof typeof STORE]: option.Read<(typeof STORE)[Name]> };

/** Milliseconds for a step of the schema, which may wait for another process that runs it. */
const MIGRATION_TIMEOUT = 60_000;

/** Runs the statements of a store, with a timeout, and reports every failure as a {@link WebhookStoreError}. */
export class StoreConnection {
  readonly schema: string;
  readonly clock: WebhookClock;
  private readonly database: Database;
  private readonly timeout: number;
  private readonly own: OwnDatabase;

  private constructor(
    private readonly description: StoreDescription,
    source: PostgresClientSource,
    options: StoreOptions,
  ) {
    this.schema = options.schema;
    this.clock = options.clock ?? new SystemClock();
    this.timeout = options.timeout ?? description.timeout;
    this.database = new Database(source, this.clock);
    this.own = new OwnDatabase(this.database, this.timeout);
  }

  /**
   * Reads the options of a store, and connects it.
   *
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  static read<Options extends StoreOptions>(
    description: StoreDescription,
    source: PostgresClientSource,
    rule: option.Rule<Options>,
    given: unknown,
  ): { readonly connection: StoreConnection; readonly options: Options } {
    const problems = new Problems(description.name);
    problems.require(
      typeof source === 'function' || isClient(source),
      'client',
      'must be a Pool of pg, another object with query(text, values), or a function that returns one',
    );
    const options = readOptions(rule, given, problems);
    warnOfMissingTimeouts(description.name, source);
    return { connection: new StoreConnection(description, source, options), options };
  }

  /**
   * Runs one statement outside any transaction.
   *
   * @param values - strings, numbers and `null`, which every driver sends alike
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_behind`
   */
  async query(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return this.reporting(async () => this.database.query(this.timeout, statement, values));
  }

  /** As `query`, for a statement that searches for its values: no string in PostgreSQL contains NUL, so it finds nothing. */
  async search(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const isPossible = !values.some((value) => typeof value === 'string' && value.includes('\0'));
    return isPossible ? this.query(statement, values) : [];
  }

  /**
   * Runs statements in a transaction of the caller.
   *
   * @param own - checks that the transaction is of the database of this store; see {@link requireSameDatabase}
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_behind`
   */
  async queryIn(
    tx: unknown,
    work: (run: RunStatement) => Promise<readonly Row[]>,
    own?: Parameters<typeof requireSameDatabase>[3],
  ): Promise<readonly Row[]> {
    return this.reporting(async () =>
      runInCall(
        async () => this.database.join(tx),
        async (call) => this.inTime(call),
        async (run) => {
          if (own !== undefined) {
            await requireSameDatabase(tx as object, run, this.own, own);
          }
          return work(run);
        },
      ),
    );
  }

  /** Reads once which database this is. It takes a connection, so it should not happen during a transaction. */
  async identify(): Promise<void> {
    await this.own.identify();
  }

  /**
   * Brings the schema up to date, for all stores in it.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_ahead`
   */
  async migrate(): Promise<void> {
    const run: RunStatement = async (statement, values) =>
      this.database.query(MIGRATION_TIMEOUT, statement, values);
    await this.reporting(async () => new SchemaMigrator(run, this.schema).migrate());
  }

  private async inTime<T>(work: () => Promise<T>): Promise<T> {
    return inTime(this.clock, this.timeout, work, () => new Error('timeout expired'));
  }

  private async reporting<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      if (cause instanceof WebhookDeliveryError) throw cause;
      throw databaseFailure(this.description.subject, cause, this.database.server);
    }
  }
}

function isClient(value: unknown): value is PostgresClient {
  return typeof (value as Partial<PostgresClient> | null | undefined)?.query === 'function';
}
