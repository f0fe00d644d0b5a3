import { randomUUID } from 'node:crypto';
import { inTime } from '../clock/deadline.js';
import type { Duration } from '../clock/duration.js';
import { SystemClock } from '../clock/system-clock.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { ConfigurationFaults } from '../errors/configuration-faults.js';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from '../replay/replay-store.js';
import { isSchemaName, SCHEMA_RULE } from './boss-host.js';
import { databaseFailure } from './database-failure.js';
import { ReplayStatements } from './replay-statements.js';
import { joinEmbeddedTransaction, joinTransaction } from './transactions/join-transaction.js';
import { rowsOf } from './transactions/query-result.js';
import { hasMethods } from './transactions/transaction-adapter.js';

/** Anything that runs a statement by itself: a `Pool` of node-postgres, a PGlite. */
export interface PostgresClient {
  /** @returns `{ rows }`, or the list of such that several statements give */
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/** All optional. */
export interface PostgresReplayStoreOptions {
  /** Where the table `replay` lies; default `webhooks`. */
  readonly schema?: string | undefined;
  /** How long the server may take to answer before the webhook is answered 503; default `'2s'`. */
  readonly timeout?: Duration | undefined;
  /** Default: the machine's clock. How long entries live is told by the server's. */
  readonly clock?: WebhookClock | undefined;
}

/** Milliseconds. */
const DEFAULT_TIMEOUT = 2_000;

/**
 * Remembers events in PostgreSQL, for any number of processes.
 *
 * Every step is one statement, so it is atomic whoever else is at it. Each reservation removes a few entries that have
 * expired. What cannot be asked is answered 503, and sent again later.
 *
 * ```ts
 * const store = new PostgresReplayStore(new Pool({ connectionString }));
 * await store.migrate(); // or run store.schemaSql once, with a user that may
 * WebhookModule.forRoot({ receiver: { …, replay: { store } } });
 * ```
 */
export class PostgresReplayStore extends ReplayStore {
  override readonly scope = 'shared';

  private readonly statements: ReplayStatements;
  private readonly timeout: number;
  private readonly clock: WebhookClock;

  /**
   * @param client - a pool; closing it stays the application's
   * @throws {@link WebhookConfigurationError} for a client that is none, and for options out of range
   */
  constructor(
    private readonly client: PostgresClient,
    options: PostgresReplayStoreOptions = {},
  ) {
    super();
    const faults = new ConfigurationFaults('PostgresReplayStore');
    faults.require(
      typeof (client as Partial<PostgresClient> | undefined)?.query === 'function',
      'client',
      'must be a Pool of pg, or what has its query(text, values)',
    );
    const { schema = 'webhooks', clock = new SystemClock() } = options;
    faults.require(isSchemaName(schema), 'schema', SCHEMA_RULE);
    this.timeout = faults.duration('timeout', options.timeout, DEFAULT_TIMEOUT);
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.clock = clock;
    this.statements = new ReplayStatements(schema);
  }

  /** The table, as SQL that can be run any number of times, for a migration of your own. */
  get schemaSql(): string {
    return this.statements.schema.join('\n');
  }

  /**
   * Makes the table where it does not exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   */
  async migrate(): Promise<void> {
    for (const statement of this.statements.schema) await this.ask(statement, []);
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const now = this.clock.now();
    const owner = randomUUID();
    const keep = wholeMs(Math.max(claim.replayUntil, claim.keepUntil) - now);
    const { key, tokenKey, fingerprint } = claim;
    const [row] = await this.ask(this.statements.reserve, [
      key,
      tokenKey,
      fingerprint,
      owner,
      wholeMs(claim.lease),
      keep,
    ]);
    // Without a row the token was refused, and the event not touched.
    if (row === undefined) return { status: 'conflict' };
    if (row['owner'] === owner) return { status: 'reserved', reservation: { claim, owner } };
    if (row['event'] !== key || row['fingerprint'] !== fingerprint) {
      await this.freeToken(claim, owner);
      return { status: 'conflict' };
    }
    if (row['done'] === true) return { status: 'done' };
    return { status: 'in-progress', retryAt: now + Math.max(1, Number(row['remaining'])) };
  }

  override async extend({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(this.statements.extend, claim, [owner, wholeMs(claim.lease)]);
  }

  override async commit({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(this.statements.commit, claim, [owner]);
  }

  /**
   * As `commit`, in a transaction of the caller's: the event is recorded as handled if, and only if, the effects of its handler
   * are. Make it the last statement before the commit: the entry stays locked until then.
   *
   * @param tx - as for a queue: of node-postgres, TypeORM, Prisma, Drizzle, Kysely or Knex, on the same database; where that is
   *   a PGlite, its own transaction, or one of Drizzle or Kysely
   * @returns `false` when the lease was lost; the caller rolls back
   * @throws {@link WebhookDeliveryError} `unsupported_option` for what is no transaction
   */
  override async commitWith(tx: unknown, { claim, owner }: ReplayReservation): Promise<boolean> {
    const join = isEmbedded(this.client) ? joinEmbeddedTransaction : joinTransaction;
    const { rows } = await join(tx).executeSql(this.statements.commit, [
      claim.key,
      claim.tokenKey,
      owner,
    ]);
    return holds(rows, claim);
  }

  override async release({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(this.statements.release, claim, [owner]);
  }

  private async change(statement: string, claim: ReplayClaim, values: string[]): Promise<boolean> {
    return holds(await this.ask(statement, [claim.key, claim.tokenKey, ...values]), claim);
  }

  /** A conflict takes neither key; where this is not reached, the token is free again when the lease has ended. */
  private async freeToken({ key, tokenKey }: ReplayClaim, owner: string): Promise<void> {
    if (tokenKey !== key) await this.ask(this.statements.freeToken, [key, tokenKey, owner]);
  }

  /** A driver may wait for its server for ever; a sender is answered in time all the same. */
  private async ask(statement: string, values: string[]): Promise<Record<string, unknown>[]> {
    const ask = async (): Promise<Record<string, unknown>[]> => {
      try {
        return rowsOf(await this.client.query(statement, values));
      } catch (cause) {
        throw databaseFailure('The replay store', cause);
      }
    };
    return inTime(
      this.clock,
      this.timeout,
      ask,
      () => new WebhookStoreError('store_unavailable', 'PostgreSQL did not answer in time.'),
    );
  }
}

function holds(rows: readonly Record<string, unknown>[], { key }: ReplayClaim): boolean {
  return rows.some(({ id }) => id === key);
}

function wholeMs(ms: number): string {
  return String(Math.max(1, Math.ceil(ms)));
}

/** Whether it is a PGlite: a client of a server has no such methods. */
function isEmbedded(client: PostgresClient): boolean {
  return hasMethods(client, 'exec', 'transaction');
}
