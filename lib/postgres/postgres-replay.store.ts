import { randomUUID } from 'node:crypto';
import type { Duration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import {
  type ReplayClaim,
  type ReplayReservation,
  ReplayStore,
  type ReplayVerdict,
} from '../replay/replay-store.js';
import { replayTable } from './migrations/migration-steps.js';
import {
  type PostgresClientSource,
  type PostgresStoreOptions,
  type Row,
  StoreConnection,
  type StoreIdentity,
} from './store-connection.js';

/** Entries that have expired and are removed with one reservation. */
const PRUNED = 4;

/**
 * The statements of the replay store.
 *
 * One table holds both keys of a claim: an event's row has `id = event`, a token's row the event it came with. So a token
 * that was an event, and an event that was a token, are found by the same comparison. A row whose time is over is as
 * good as none. Times are the server's; durations come from the receiver.
 */
export class ReplayStatements {
  /** `$1` event, `$2` token, `$3` fingerprint, `$4` owner, `$5` lease and `$6` time to keep, in milliseconds. */
  readonly reserve: string;

  /** `$1` event, `$2` token, `$3` owner, `$4` lease in milliseconds. */
  readonly extend: string;

  /** `$1` event, `$2` token, `$3` owner. */
  readonly commit: string;

  /** `$1` event, `$2` token, `$3` owner. */
  readonly release: string;

  /** Gives back a token that was taken for an event which turned out to be a conflict. Values as for `release`. */
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

    // The token first: where it belongs to another event, that event is not looked at. What is written reads the row as it is
    // when its turn has come, not as it was when the statement began; so of two at once one sees the other's.
    this.reserve = `WITH pruned AS (
  DELETE FROM ${table} WHERE id IN (
    SELECT id FROM ${table} WHERE expires_at <= now() AND id <> $1 AND id <> $2
    ORDER BY expires_at LIMIT ${PRUNED} FOR UPDATE SKIP LOCKED
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

    // The holder of the event holds its token, whichever copy has brought it.
    const held = `id = $1 AND event = $1 AND owner = $3 AND NOT done AND expires_at > ${now}`;
    const itsToken = `id = $2 AND id <> $1 AND event = $1 AND EXISTS (SELECT FROM held)`;
    const both = (change: (which: string) => string): string =>
      `WITH held AS (${change(held)} RETURNING id), token AS (${change(itsToken)}) SELECT id FROM held`;
    const set = (columns: string) => (which: string) =>
      `UPDATE ${table} SET ${columns} WHERE ${which}`;
    this.extend = both(set(`expires_at = ${now} + ${ms('$4')}`));
    this.commit = both(set('done = true, owner = NULL, expires_at = keep_until'));
    this.release = both((which) => `DELETE FROM ${table} WHERE ${which}`);
    this.freeToken = `DELETE FROM ${table} WHERE id = $2 AND event = $1 AND owner = $3 AND NOT done`;
  }
}

/** All optional. */
export interface PostgresReplayStoreOptions extends PostgresStoreOptions {
  /** Where the table `replay` lies; default `webhooks`. */
  readonly schema?: string | undefined;
  /** How long the server may take to answer before the webhook is answered 503; default `'2s'`. */
  readonly timeout?: Duration | undefined;
  /** Default: the machine's clock. How long entries live is told by the server's. */
  readonly clock?: WebhookClock | undefined;
}

const IDENTITY: StoreIdentity = {
  name: 'PostgresReplayStore',
  subject: 'The replay store',
  timeout: 2_000,
};

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
  private readonly connection: StoreConnection;

  /**
   * @param client - a pool, or what gives one; closing it stays the application's
   * @throws {@link WebhookConfigurationError} for a client that is none, and for options out of range
   */
  constructor(client: PostgresClientSource, options: PostgresReplayStoreOptions = {}) {
    super();
    this.connection = new StoreConnection(IDENTITY, client, options);
    this.statements = new ReplayStatements(this.connection.schema);
  }

  /** The table of this store alone, as SQL that can be run any number of times, for a migration of your own. */
  get schemaSql(): string {
    const { schema } = this.connection;
    return [`CREATE SCHEMA IF NOT EXISTS ${schema};`, ...replayTable(schema)].join('\n');
  }

  /**
   * Brings the schema up to date: this table and those of the other stores. Any number of processes may do so at once.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` where a newer version of the package has made it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const now = this.connection.clock.now();
    const owner = randomUUID();
    const keep = wholeMs(Math.max(claim.replayUntil, claim.keepUntil) - now);
    const { key, tokenKey, fingerprint } = claim;
    const [row] = await this.connection.ask(this.statements.reserve, [
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
   * @throws {@link WebhookStoreError} `store_unavailable` where the statement fails; the caller rolls back
   */
  override async commitWith(tx: unknown, { claim, owner }: ReplayReservation): Promise<boolean> {
    const values = [claim.key, claim.tokenKey, owner];
    return holds(await this.connection.askIn(tx, this.statements.commit, values), claim);
  }

  override async release({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(this.statements.release, claim, [owner]);
  }

  /**
   * The event's row is taken before the token's, and by a reservation after it: of a copy with the same token that comes in
   * this very moment one gives way, and it must not be what records the event. Undone by PostgreSQL, it is made again.
   */
  private async change(statement: string, claim: ReplayClaim, values: string[]): Promise<boolean> {
    const ask = async (): Promise<boolean> =>
      holds(await this.connection.ask(statement, [claim.key, claim.tokenKey, ...values]), claim);
    try {
      return await ask();
    } catch (error) {
      if (!isDeadlock(error)) throw error;
      return ask();
    }
  }

  /** A conflict takes neither key; where this is not reached, the token is free again when the lease has ended. */
  private async freeToken({ key, tokenKey }: ReplayClaim, owner: string): Promise<void> {
    if (tokenKey !== key)
      await this.connection.ask(this.statements.freeToken, [key, tokenKey, owner]);
  }
}

function isDeadlock(error: unknown): boolean {
  const { cause } = error as { readonly cause?: { readonly code?: unknown } };
  return cause?.code === '40P01';
}

function holds(rows: readonly Row[], { key }: ReplayClaim): boolean {
  return rows.some(({ id }) => id === key);
}

function wholeMs(ms: number): string {
  return String(Math.max(1, Math.ceil(ms)));
}
