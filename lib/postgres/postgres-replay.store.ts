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
 * await store.migrate(); // or `npx nestjs-webhook-token migrate`, as a user with the privileges
 * WebhookModule.forRoot({ receiver: { …, replay: { store } } });
 * ```
 */
export class PostgresReplayStore extends ReplayStore {
  override readonly scope = 'shared';

  private readonly connection: StoreConnection;
  private readonly table: string;
  private readonly lost: LostReservations;

  /**
   * @param client - a pool, or a function that returns one; the application closes it
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(client: PostgresClientSource, options?: PostgresReplayStoreOptions) {
    super();
    this.connection = new StoreConnection(DESCRIPTION, client, options);
    this.table = `${this.connection.schema}.replay`;
    const release = async (reservation: ReplayReservation) => this.release(reservation);
    this.lost = new LostReservations(release, this.connection.clock);
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
    const [row] = await this.connection.query(this.reserving, values).catch((error: unknown) => {
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
    const extended = `UPDATE ${this.table} SET expires_at = ${NOW} + ${ms('$4')}`;
    return this.change(changeOfBoth(extended), claim, [owner, wholeMs(claim.lease)]);
  }

  override async commit({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(changeOfBoth(this.committing), claim, [owner]);
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
    const statement = changeOfBoth(this.committing, `${HELD} AND ${HAS_WRITTEN}`);
    const values = [claim.key, claim.tokenKey, owner];
    const commit = async (run: RunStatement): Promise<readonly Row[]> =>
      runInTransaction(run, statement, values, (rows) => holds(rows, claim));
    return holds(await this.connection.joining(tx, commit, OWN_DATABASE), claim);
  }

  override async release({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(changeOfBoth(`DELETE FROM ${this.table}`), claim, [owner]);
  }

  private get committing(): string {
    return `UPDATE ${this.table} SET done = true, owner = NULL, expires_at = keep_until`;
  }

  private async change(statement: string, claim: ReplayClaim, values: string[]): Promise<boolean> {
    const all = [claim.key, claim.tokenKey, ...values];
    return holds(await this.connection.query(statement, all), claim);
  }

  /** A conflict reserves neither key. If this statement fails, the token is free when the lease expires. */
  private async freeToken({ key, tokenKey }: ReplayClaim, owner: string): Promise<void> {
    if (tokenKey === key) return;
    await this.connection.query(
      `DELETE FROM ${this.table} WHERE id = $2 AND event = $1 AND owner = $3 AND NOT done`,
      [key, tokenKey, owner],
    );
  }

  /**
   * `$1` event, `$2` token, `$3` fingerprint, `$4` owner, `$5` lease and `$6` time to keep, in milliseconds.
   *
   * The token first: if it belongs to another event, the event is left alone. ON CONFLICT reads the row as it is when
   * its lock is granted, not as it was when the statement started, so of two concurrent claims one sees the other.
   */
  private get reserving(): string {
    const { table } = this;
    const values = `$1, $3, $4, ${NOW} + ${ms('$5')}, ${NOW} + ${ms('$6')}`;
    const later = (column: string): string => `${column} = CASE
      WHEN NOT ${TAKEN} THEN excluded.${column}
      WHEN known.event = excluded.event THEN greatest(known.${column}, excluded.${column})
      ELSE known.${column} END`;
    return `WITH pruned AS (
  DELETE FROM ${table} WHERE id IN (
    SELECT id FROM ${table} WHERE expires_at <= now() AND id <> $1 AND id <> $2
    ORDER BY expires_at LIMIT ${REMOVED_PER_RESERVATION} FOR UPDATE SKIP LOCKED
  )
), token AS (
  INSERT INTO ${table} AS known (id, event, fingerprint, owner, expires_at, keep_until)
  SELECT $2, ${values} WHERE $1::text <> $2::text
  ON CONFLICT (id) DO UPDATE SET ${TAKE}, ${later('expires_at')}, ${later('keep_until')}
  RETURNING known.event
), claimed AS (
  INSERT INTO ${table} AS known (id, event, fingerprint, owner, expires_at, keep_until)
  SELECT $1, ${values} WHERE $1::text = $2::text OR (SELECT event FROM token) = $1::text
  ON CONFLICT (id) DO UPDATE SET ${TAKE},
    expires_at = CASE
      WHEN NOT ${TAKEN} THEN excluded.expires_at
      WHEN known.done AND ${IS_COPY} THEN greatest(known.expires_at, excluded.keep_until)
      ELSE known.expires_at END,
    keep_until = CASE
      WHEN NOT ${TAKEN} THEN excluded.keep_until
      WHEN ${IS_COPY} THEN greatest(known.keep_until, excluded.keep_until)
      ELSE known.keep_until END
  RETURNING event, fingerprint, owner, done,
    ceil(extract(epoch FROM expires_at - ${NOW}) * 1000)::float8 AS remaining
)
SELECT * FROM claimed`;
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

/*
 * One table stores both keys of a claim: the row of an event has `id = event`, the row of a token names the event that it
 * arrived with. A key that was first a token and then an event is therefore found by the same comparison. An expired
 * row counts as absent. Times are those of the server; durations come from the receiver.
 */

const NOW = 'clock_timestamp()';
const TAKEN = `known.expires_at > ${NOW}`;
const IS_COPY = `known.event = excluded.event AND known.fingerprint = excluded.fingerprint`;
const TAKE = ['event', 'fingerprint', 'owner', 'done']
  .map(
    (column) => `${column} = CASE WHEN ${TAKEN} THEN known.${column} ELSE excluded.${column} END`,
  )
  .join(', ');
/** `$1` event, `$3` owner. */
const HELD = `id = $1 AND event = $1 AND owner = $3 AND NOT done AND expires_at > ${NOW}`;

function ms(parameter: string): string {
  return `${parameter}::float8 * interval '1 ms'`;
}

/** Changes the rows of an event and of its token: its holder also holds the token, whichever copy of the event that arrived with. */
function changeOfBoth(change: string, held = HELD): string {
  const itsToken = `id = $2 AND id <> $1 AND event = $1 AND EXISTS (SELECT FROM held)`;
  return `WITH held AS (${change} WHERE ${held} RETURNING id), token AS (${change} WHERE ${itsToken}) SELECT id FROM held`;
}
