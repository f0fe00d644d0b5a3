import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import * as option from '../options/rules.js';
import { Connection } from './connection.js';
import {
  Database,
  type PostgresClient,
  type PostgresClientSource,
  warnOfMissingTimeouts,
} from './database.js';
import { SCHEMA } from './sql-text.js';

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

type StoreOptions = { readonly [Name in keyof typeof STORE]: option.Read<(typeof STORE)[Name]> };

interface StoreDescription<Options extends StoreOptions> {
  /** The class, for errors in its options. */
  readonly name: string;
  /** The subject of an error message: 'The replay store'. */
  readonly subject: string;
  /** The default, in milliseconds. */
  readonly timeout: number;
  readonly options: option.Rule<Options>;
}

/** The database of a store, whose client belongs to the application. */
export class StoreConnection<Options extends StoreOptions = StoreOptions> extends Connection {
  readonly options: Options;
  private readonly database: Database;

  /** @throws {@link WebhookConfigurationError} for an invalid client or option */
  constructor(
    description: StoreDescription<Options>,
    source: PostgresClientSource,
    given: unknown,
  ) {
    const { name, subject } = description;
    const problems = new Problems(name);
    problems.require(
      typeof source === 'function' || isClient(source),
      'client',
      'must be a Pool of pg, another object with query(text, values), or a function that returns one',
    );
    const options = readOptions(description.options, given, problems);
    const { schema, clock = new SystemClock(), timeout = description.timeout } = options;
    super(subject, schema, clock, timeout);
    this.options = options;
    warnOfMissingTimeouts(name, source);
    this.database = new Database(source, clock, timeout);
  }

  override get server(): string {
    return this.database.server;
  }

  override async open(): Promise<Database> {
    return this.database;
  }

  /** Reads once which database this is. It takes a connection, so it should not happen during a transaction. */
  async identify(): Promise<void> {
    await this.database.own.identify();
  }

  /**
   * Brings the schema up to date, for all stores in it.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, `schema_ahead`
   */
  async migrate(): Promise<void> {
    await this.using(async (database) => this.migratorOf(database).migrate());
  }
}

function isClient(value: unknown): value is PostgresClient {
  return typeof (value as Partial<PostgresClient> | null | undefined)?.query === 'function';
}
