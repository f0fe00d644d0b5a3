import type { Db } from 'pg-boss';
import type { Duration } from '../clock/duration.js';
import { inTime, SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError, WebhookStoreError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { isSchemaName, SCHEMA_RULE } from './boss-host.js';
import { databaseFailure, describeServer } from './database-failure.js';
import { SchemaMigrator } from './migrations/schema.migrator.js';
import { joinEmbeddedTransaction, joinTransaction } from './transactions/join-transaction.js';
import { rowsOf, hasMethods } from './transactions/transaction-adapters.js';

/** Options of every store on PostgreSQL. All optional. */
export interface PostgresStoreOptions {
  /** The schema of its tables; default `webhooks`. */
  readonly schema?: string | undefined;
  /** Time that a statement may take before the store counts as unavailable. */
  readonly timeout?: Duration | undefined;
  /** Default: the system clock. */
  readonly clock?: WebhookClock | undefined;
}

/** Runs single statements: a `Pool` of node-postgres, a PGlite. */
export interface PostgresClient {
  /** @returns `{ rows }`, or a list of those for several statements */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/**
 * A client, or a function that returns one and is called for each statement: `() => queue.database()` of a
 * {@link PgliteQueue}.
 */
export type PostgresClientSource =
  PostgresClient | (() => PostgresClient | Promise<PostgresClient>);

/** A row, by column. */
export type Row = Readonly<Record<string, unknown>>;

/** A kind of store, for messages, and its default timeout. */
export interface StoreDescription {
  /** The class, for errors in its options. */
  readonly name: string;
  /** The subject of an error message: 'The replay store'. */
  readonly subject: string;
  /** Milliseconds. */
  readonly timeout: number;
}

/** Milliseconds for a step of the schema, which may wait for another process that runs it. */
const MIGRATION_TIMEOUT = 60_000;

/** Runs the statements of a store, with a timeout, and reports every failure as a {@link WebhookStoreError}. */
export class StoreConnection {
  readonly schema: string;
  readonly clock: WebhookClock;
  private readonly timeout: number;
  /** The database, for messages. */
  private server: string;

  /** @throws {@link WebhookConfigurationError} for an invalid client or option */
  constructor(
    private readonly description: StoreDescription,
    private readonly source: PostgresClientSource,
    options: PostgresStoreOptions,
  ) {
    const faults = new ConfigurationFaults(description.name);
    faults.require(
      typeof source === 'function' || isClient(source),
      'client',
      'must be a Pool of pg, another object with query(text, values), or a function that returns one',
    );
    const { schema = 'webhooks', clock = new SystemClock() } = options;
    faults.require(isSchemaName(schema), 'schema', SCHEMA_RULE);
    this.timeout = faults.duration('timeout', options.timeout, description.timeout);
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.schema = schema;
    this.server = describeServer(source);
    this.clock = clock;
  }

  /**
   * Runs one statement outside any transaction.
   *
   * @param values - strings, numbers and `null`, which every driver sends alike
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_behind`
   */
  async query(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return this.queryWithin(this.timeout, statement, values);
  }

  /** As `query`, for a statement that searches for its values: no string in PostgreSQL contains NUL, so it finds nothing. */
  async search(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const isPossible = !values.some((value) => typeof value === 'string' && value.includes('\0'));
    return isPossible ? this.query(statement, values) : [];
  }

  /**
   * Runs one statement in a transaction of the caller.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_behind`
   */
  async queryIn(
    tx: unknown,
    statement: string,
    values: readonly unknown[],
  ): Promise<readonly Row[]> {
    const db = await this.join(tx);
    const { rows } = await this.limit(this.timeout, async () =>
      db.executeSql(statement, [...values]),
    );
    return rows as readonly Row[];
  }

  /**
   * Brings the schema up to date, for all stores in it.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_ahead`
   */
  async migrate(): Promise<void> {
    const run = async (statement: string, values: readonly unknown[]): Promise<readonly Row[]> =>
      this.queryWithin(MIGRATION_TIMEOUT, statement, values);
    await new SchemaMigrator(run, this.schema).migrate();
  }

  /** Embedded databases and servers have different libraries, with different transactions. */
  private async join(tx: unknown): Promise<Db> {
    const client = await this.limit(this.timeout, async () => this.client());
    const isEmbedded = hasMethods(client, 'exec', 'transaction');
    return isEmbedded ? joinEmbeddedTransaction(tx) : joinTransaction(tx);
  }

  private async queryWithin(
    ms: number,
    statement: string,
    values: readonly unknown[],
  ): Promise<readonly Row[]> {
    return this.limit(ms, async () => {
      const client = await this.client();
      return rowsOf(await client.query(statement, [...values]));
    });
  }

  private async client(): Promise<PostgresClient> {
    if (typeof this.source !== 'function') return this.source;
    const client = await this.source();
    this.server = describeServer(client);
    return client;
  }

  /** A driver may wait for its server forever. */
  private async limit<T>(ms: number, work: () => Promise<T>): Promise<T> {
    const attempt = async (): Promise<T> => {
      try {
        return await work();
      } catch (cause) {
        throw databaseFailure(this.description.subject, cause, this.server);
      }
    };
    return inTime(
      this.clock,
      ms,
      attempt,
      () =>
        new WebhookStoreError(
          'store_unavailable',
          `${this.description.subject} got no answer from ${this.server} within ${ms} ms: check that it is reachable and not overloaded, ` +
            'and that the pool has a free connection.',
        ),
    );
  }
}

function isClient(value: unknown): value is PostgresClient {
  return typeof (value as Partial<PostgresClient> | null | undefined)?.query === 'function';
}
