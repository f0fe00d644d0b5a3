import { randomUUID } from 'node:crypto';
import type { Duration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { LostReservations } from '../replay/lost-reservations.js';
import {
  type ReplayClaim,
  type ReplayReservation,
  ReplayStore,
  type ReplayVerdict,
} from '../replay/replay-store.js';
import { object } from '../options/rules.js';
import { replayTable } from './migrations/migration-steps.js';
import type { PostgresClientSource, Row, RunStatement } from './database.js';
import { type PostgresStoreOptions, STORE, StoreConnection } from './store-connection.js';
import { HAS_WRITTEN } from './sql-text.js';
import { runInTransaction } from './transactions.js';

/** All optional. */
export interface PostgresReplayStoreOptions extends PostgresStoreOptions {
  /** The schema of the table `replay`; default `webhooks`. */
  readonly schema?: string | undefined;
  /** Time that a statement may take before the webhook is rejected with 503; default `'2s'`. */
  readonly timeout?: Duration | undefined;
  /** Default: the system clock. Entries expire by the server's clock. */
  readonly clock?: WebhookClock | undefined;
}

const DESCRIPTION = {
  name: 'PostgresReplayStore',
  subject: 'The replay store',
  timeout: 2_000,
  options: object<PostgresReplayStoreOptions>()(STORE),
};

/** For the message about a transaction of another database. */
const OWN_DATABASE = {
  use: 'this replay store keeps its entries',
  instead: 'commit the event without tx',
};

/**
 * Stores replay claims in PostgreSQL, for any number of processes.
 *
 * Every step is one atomic statement. Each reservation removes a few expired entries. While the server is unavailable, webhooks
 * are rejected with 503, and their senders retry.
 *
 * ```ts
 * const store = new PostgresReplayStore(new Pool({ connectionString }));
 * await store.migrate(); // or run store.schemaSql once, as a user with the privileges
 * WebhookModule.forRoot({ receiver: { …, replay: { store } } });
 * ```
 */
export class PostgresReplayStore extends ReplayStore {
  override readonly scope = 'shared';

  private readonly statements: ReplayStatements;
  private readonly connection: StoreConnection;
  private readonly lost: LostReservations;

  /**
   * @param client - a pool, or a function that returns one; the application closes it
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(client: PostgresClientSource, options?: PostgresReplayStoreOptions) {
    super();
    this.connection = new StoreConnection(DESCRIPTION, client, options);
    this.statements = new ReplayStatements(this.connection.schema);
    const release = async (reservation: ReplayReservation) => this.release(reservation);
    this.lost = new LostReservations(release, this.connection.clock);
  }

  /** SQL that creates the table of this store if it is missing, for a migration of your own. */
  get schemaSql(): string {
    const { schema } = this.connection;
    return [`CREATE SCHEMA IF NOT EXISTS ${schema};`, ...replayTable(schema)].join('\n');
  }

  /**
   * Brings the schema up to date, for this and the other stores. Several processes may call it at the same time.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` if a newer version of the package has migrated it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    // For `commitWith`: the transactions that call it may hold every connection of the pool.
    void this.connection.identify().catch(() => {});
    const now = this.connection.clock.now();
    const owner = randomUUID();
    const keep = wholeMs(Math.max(claim.replayUntil, claim.keepUntil) - now);
    const { key, tokenKey, fingerprint } = claim;
    const values = [key, tokenKey, fingerprint, owner, wholeMs(claim.lease), keep];
    const [row] = await this.connection
      .query(this.statements.reserve, values)
      .catch((error: unknown) => {
        this.lost.add({ claim, owner });
        throw error;
      });
    // No row: the token belongs to another event.
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
   * As `commit`, in a transaction of the caller: the event is recorded as handled if and only if the transaction commits. Make it
   * the last statement of the transaction: the entry stays locked until the commit.
   *
   * @param tx - as for a queue: of node-postgres, TypeORM, Prisma, Drizzle, Kysely or Knex, on the same database; on PGlite, its
   *   own transaction, or one of Drizzle or Kysely
   * @returns `false` if the lease was lost; roll back then
   * @throws {@link WebhookDeliveryError} `unsupported_option` if `tx` is not a transaction of the same database
   * @throws {@link WebhookStoreError} `store_unavailable` if the statement fails; roll back then
   */
  override async commitWith(tx: unknown, { claim, owner }: ReplayReservation): Promise<boolean> {
    const { connection, statements } = this;
    const values = [claim.key, claim.tokenKey, owner];
    const commit = async (run: RunStatement): Promise<readonly Row[]> =>
      runInTransaction(run, statements.commitIn, values, (rows) => holds(rows, claim));
    return holds(await connection.joining(tx, commit, OWN_DATABASE), claim);
  }

  override async release({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(this.statements.release, claim, [owner]);
  }

  private async change(statement: string, claim: ReplayClaim, values: string[]): Promise<boolean> {
    return holds(
      await this.connection.query(statement, [claim.key, claim.tokenKey, ...values]),
      claim,
    );
  }

  /** A conflict reserves neither key. If this statement fails, the token is free when the lease expires. */
  private async freeToken({ key, tokenKey }: ReplayClaim, owner: string): Promise<void> {
    if (tokenKey !== key)
      await this.connection.query(this.statements.freeToken, [key, tokenKey, owner]);
  }
}

function holds(rows: readonly Row[], { key }: ReplayClaim): boolean {
  return rows.some(({ id }) => id === key);
}

function wholeMs(ms: number): string {
  return String(Math.max(1, Math.ceil(ms)));
}

/** Expired entries that each reservation removes. */
const REMOVED_PER_RESERVATION = 4;

/**
 * The statements of the replay store.
 *
 * One table stores both keys of a claim: the row of an event has `id = event`, the row of a token names the event that it
 * arrived with. A key that was first a token and then an event is therefore found by the same comparison. An expired
 * row counts as absent. Times are those of the server; durations come from the receiver.
 */
class ReplayStatements {
  /** `$1` event, `$2` token, `$3` fingerprint, `$4` owner, `$5` lease and `$6` time to keep, in milliseconds. */
  readonly reserve: string;

  /** `$1` event, `$2` token, `$3` owner, `$4` lease in milliseconds. */
  readonly extend: string;

  /** `$1` event, `$2` token, `$3` owner. */
  readonly commit: string;

  /** As `commit`, in a transaction of the caller: does nothing unless {@link HAS_WRITTEN}. */
  readonly commitIn: string;

  /** `$1` event, `$2` token, `$3` owner. */
  readonly release: string;

  /** Frees a token that was reserved for an event in conflict. Values as for `release`. */
  readonly freeToken: string;

  constructor(schema: string) {
    const table = `${schema}.replay`;
    const now = 'clock_timestamp()';
    const ms = (parameter: string): string => `${parameter}::float8 * interval '1 ms'`;
    const values = `$1, $3, $4, ${now} + ${ms('$5')}, ${now} + ${ms('$6')}`;
    const taken = `known.expires_at > ${now}`;
    const copy = `known.event = excluded.event AND known.fingerprint = excluded.fingerprint`;
    const unlessTaken = (column: string): string =>
      `${column} = CASE WHEN ${taken} THEN known.${column} ELSE excluded.${column} END`;
    const later = (column: string): string => `${column} = CASE
      WHEN NOT ${taken} THEN excluded.${column}
      WHEN known.event = excluded.event THEN greatest(known.${column}, excluded.${column})
      ELSE known.${column} END`;
    const take = ['event', 'fingerprint', 'owner', 'done'].map(unlessTaken).join(', ');

    // The token first: if it belongs to another event, the event is left alone. ON CONFLICT reads the row as it is when
    // its lock is granted, not as it was when the statement started, so of two concurrent claims one sees the other.
    this.reserve = `WITH pruned AS (
  DELETE FROM ${table} WHERE id IN (
    SELECT id FROM ${table} WHERE expires_at <= now() AND id <> $1 AND id <> $2
    ORDER BY expires_at LIMIT ${REMOVED_PER_RESERVATION} FOR UPDATE SKIP LOCKED
  )
), token AS (
  INSERT INTO ${table} AS known (id, event, fingerprint, owner, expires_at, keep_until)
  SELECT $2, ${values} WHERE $1::text <> $2::text
  ON CONFLICT (id) DO UPDATE SET ${take}, ${later('expires_at')}, ${later('keep_until')}
  RETURNING known.event
), claimed AS (
  INSERT INTO ${table} AS known (id, event, fingerprint, owner, expires_at, keep_until)
  SELECT $1, ${values} WHERE $1::text = $2::text OR (SELECT event FROM token) = $1::text
  ON CONFLICT (id) DO UPDATE SET ${take},
    expires_at = CASE
      WHEN NOT ${taken} THEN excluded.expires_at
      WHEN known.done AND ${copy} THEN greatest(known.expires_at, excluded.keep_until)
      ELSE known.expires_at END,
    keep_until = CASE
      WHEN NOT ${taken} THEN excluded.keep_until
      WHEN ${copy} THEN greatest(known.keep_until, excluded.keep_until)
      ELSE known.keep_until END
  RETURNING event, fingerprint, owner, done,
    ceil(extract(epoch FROM expires_at - ${now}) * 1000)::float8 AS remaining
)
SELECT * FROM claimed`;

    // The holder of an event also holds its token, whichever copy of the event it arrived with.
    const held = `id = $1 AND event = $1 AND owner = $3 AND NOT done AND expires_at > ${now}`;
    const itsToken = `id = $2 AND id <> $1 AND event = $1 AND EXISTS (SELECT FROM held)`;
    const both = (change: (which: string) => string, holder = held): string =>
      `WITH held AS (${change(holder)} RETURNING id), token AS (${change(itsToken)}) SELECT id FROM held`;
    const set = (columns: string) => (which: string) =>
      `UPDATE ${table} SET ${columns} WHERE ${which}`;
    this.extend = both(set(`expires_at = ${now} + ${ms('$4')}`));
    const commit = set('done = true, owner = NULL, expires_at = keep_until');
    this.commit = both(commit);
    this.commitIn = both(commit, `${held} AND ${HAS_WRITTEN}`);
    this.release = both((which) => `DELETE FROM ${table} WHERE ${which}`);
    this.freeToken = `DELETE FROM ${table} WHERE id = $2 AND event = $1 AND owner = $3 AND NOT done`;
  }
}
