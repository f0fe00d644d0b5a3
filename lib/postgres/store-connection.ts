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

/** What every store on PostgreSQL takes. All optional. */
export interface PostgresStoreOptions {
  /** Where its tables lie; default `webhooks`. */
  readonly schema?: string | undefined;
  /** How long the server may take to answer before the store counts as unavailable. */
  readonly timeout?: Duration | undefined;
  /** Default: the machine's clock. */
  readonly clock?: WebhookClock | undefined;
}

/** Anything that runs a statement by itself: a `Pool` of node-postgres, a PGlite. */
export interface PostgresClient {
  /** @returns `{ rows }`, or the list of such that several statements give */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/**
 * A client, or what gives one when it is first needed, and each time after that: `() => queue.database()` of an
 * {@link PgliteQueue}.
 */
export type PostgresClientSource =
  PostgresClient | (() => PostgresClient | Promise<PostgresClient>);

/** A row, by its columns. */
export type Row = Readonly<Record<string, unknown>>;

/** Who asks. */
export interface StoreIdentity {
  /** Its class, for faults of its options. */
  readonly name: string;
  /** The subject of a sentence: 'The replay store'. */
  readonly subject: string;
  /** Milliseconds. */
  readonly timeout: number;
}

/** Milliseconds that a step of the schema may take: it may wait for another process at it. */
const MIGRATION_TIMEOUT = 60_000;

/**
 * How a store asks its database: in time, and with every failure in words of ours.
 */
export class StoreConnection {
  readonly schema: string;
  readonly clock: WebhookClock;
  private readonly timeout: number;
  /** The database, for messages. */
  private server: string;

  /** @throws {@link WebhookConfigurationError} for a client that is none, and for options out of range */
  constructor(
    private readonly identity: StoreIdentity,
    private readonly source: PostgresClientSource,
    options: PostgresStoreOptions,
  ) {
    const faults = new ConfigurationFaults(identity.name);
    faults.require(
      typeof source === 'function' || isClient(source),
      'client',
      'must be a Pool of pg, or what has its query(text, values), or a function that gives one',
    );
    const { schema = 'webhooks', clock = new SystemClock() } = options;
    faults.require(isSchemaName(schema), 'schema', SCHEMA_RULE);
    this.timeout = faults.duration('timeout', options.timeout, identity.timeout);
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.schema = schema;
    this.server = describeServer(source);
    this.clock = clock;
  }

  /**
   * Runs one statement by itself.
   *
   * @param values - texts, numbers and `null`, which every driver sends alike
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_behind`
   */
  async ask(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return this.askWithin(this.timeout, statement, values);
  }

  /** As `ask`, for a statement that looks for its values: no text in PostgreSQL holds a NUL, so nothing is found by one. */
  async match(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    const isPossible = !values.some((value) => typeof value === 'string' && value.includes('\0'));
    return isPossible ? this.ask(statement, values) : [];
  }

  /**
   * Runs one statement in a transaction of the caller's.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` for what is no transaction
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_behind`
   */
  async askIn(tx: unknown, statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
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
      this.askWithin(MIGRATION_TIMEOUT, statement, values);
    await new SchemaMigrator(run, this.schema).migrate();
  }

  /** An embedded database knows transactions that no server has, and the other way about. */
  private async join(tx: unknown): Promise<Db> {
    const client = await this.limit(this.timeout, async () => this.client());
    const isEmbedded = hasMethods(client, 'exec', 'transaction');
    return isEmbedded ? joinEmbeddedTransaction(tx) : joinTransaction(tx);
  }

  private async askWithin(
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

  /** A driver may wait for its server for ever; whoever asks is answered in time all the same. */
  private async limit<T>(ms: number, work: () => Promise<T>): Promise<T> {
    const attempt = async (): Promise<T> => {
      try {
        return await work();
      } catch (cause) {
        throw databaseFailure(this.identity.subject, cause, this.server);
      }
    };
    return inTime(
      this.clock,
      ms,
      attempt,
      () =>
        new WebhookStoreError(
          'store_unavailable',
          `${this.identity.subject} got no answer from ${this.server} within ${ms} ms: check that it is reachable and not overloaded, ` +
            'and that the pool has a free connection.',
        ),
    );
  }
}

function isClient(value: unknown): value is PostgresClient {
  return typeof (value as Partial<PostgresClient> | null | undefined)?.query === 'function';
}
