import {
  type InboxBounds,
  type InboxEntry,
  type InboxFilter,
  type InboxOutcome,
  type InboxSettlement,
  InboxStore,
  inboxBounds,
  maxDuplicates,
} from '../inbox/inbox-store.js';
import { object, type Read } from '../options/rules.js';
import { deleteInBatches } from './connection.js';
import type { PostgresClientSource, Row } from './database.js';
import { Conditions, millisecondsOf, timeOf } from './sql-text.js';
import { type PostgresStoreOptions, STORE, StoreConnection } from './store-connection.js';

/** Entries that one statement deletes. */
const DELETED_AT_ONCE = 1_000;

/** Milliseconds by which the clocks of processes may differ. An entry that is further ahead has a wrong time. */
const MAX_SKEW = 60_000;

/** All optional. `maxAccepted` is 10,000 by default, `maxRefused` 1,000; the bounds apply to all processes together. */
export interface PostgresInboxStoreOptions extends PostgresStoreOptions, InboxBounds {}

const DESCRIPTION = {
  name: 'PostgresInboxStore',
  subject: 'The inbox store',
  timeout: 5_000,
  options: object<PostgresInboxStoreOptions>()({ ...STORE, ...inboxBounds(10_000, 1_000) }),
};

/**
 * Stores the record of received requests in PostgreSQL, for any number of processes: on a server, or in the embedded database of a
 * queue. Every write is a batch.
 *
 * ```ts
 * const store = new PostgresInboxStore(new Pool({ connectionString }));
 * await store.migrate(); // or npx nestjs-webhook-token migrate, as a user with the privileges
 * ```
 */
export class PostgresInboxStore extends InboxStore {
  override readonly durable = true;

  private readonly connection: StoreConnection;
  private readonly table: string;
  private readonly bounds: Read<(typeof DESCRIPTION)['options']>;

  /**
   * @param client - a pool, or a function that returns one; the application closes it
   * @param options - the default `timeout` is `'5s'`
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(client: PostgresClientSource, options?: PostgresInboxStoreOptions) {
    super();
    const connection = new StoreConnection(DESCRIPTION, client, options);
    this.bounds = connection.options;
    this.connection = connection;
    this.table = `${this.connection.schema}.inbox`;
  }

  /**
   * Brings the schema up to date, for this and the other stores. Several processes may call it at the same time.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; `schema_ahead` if a newer version of the package has migrated it
   */
  async migrate(): Promise<void> {
    await this.connection.migrate();
  }

  override async deleteExpired(now: number): Promise<void> {
    const { keep } = this.bounds;
    if (keep === undefined) return;
    // Ids are in the order of time, so the oldest entries are at one end of an index.
    const oldest = `SELECT id FROM ${this.table} ORDER BY id LIMIT ${DELETED_AT_ONCE}`;
    await this.deleteInBatches(`at <= ${timeOf('$1')} AND id = ANY (ARRAY(${oldest}))`, [
      now - keep,
    ]);
  }

  override async record(entries: readonly InboxEntry[]): Promise<void> {
    if (entries.length === 0) return;
    await this.connection.query(
      `INSERT INTO ${this.table} (id, at, refused, outcome, runs, receiver, code, event, event_id, issuer, delivery_id, details, content)
SELECT id, ${timeOf('at')}, outcome = 'refused', outcome, runs, receiver, code, event, event_id, issuer, delivery_id, details, content
FROM json_to_recordset($1::text::json) AS entry(id text, at float8, outcome text, runs int, receiver text, code text,
  event text, event_id text, issuer text, delivery_id text, details text, content text)
ON CONFLICT (id) DO NOTHING`,
      [JSON.stringify(entries.map(rowOf))],
    );
    const { maxAccepted, maxRefused } = this.bounds;
    const outcomes = new Set(entries.map(({ outcome }) => outcome));
    const latest = Math.max(...entries.map(({ at }) => at)) + MAX_SKEW;
    const prune = async (ofKind: string, bound: number) => this.prune(ofKind, bound, latest);
    if (outcomes.delete('refused')) await prune('refused', maxRefused);
    if (outcomes.delete('duplicate')) {
      await prune("NOT refused AND outcome = 'duplicate'", maxDuplicates(maxAccepted));
    }
    if (outcomes.size > 0) await prune("NOT refused AND outcome <> 'duplicate'", maxAccepted);
  }

  override async settle(settlements: readonly InboxSettlement[]): Promise<readonly string[]> {
    // One statement changes a row once, so only the last settlement of each event is written.
    const last = new Map<string, InboxSettlement>();
    for (const one of settlements) {
      const isRetry = one.outcome === 'queued' && one.runs === 0;
      // The event was handled meanwhile.
      if (isRetry && last.get(one.deliveryId)?.outcome === 'handled') continue;
      last.set(one.deliveryId, one);
    }
    if (last.size === 0) return [];
    const unknown = await this.connection.query(
      `WITH settled AS (
  SELECT *, (SELECT max(id) FROM ${this.table} WHERE delivery_id = "deliveryId") AS id
  FROM json_to_recordset($1::text::json) AS settlement("deliveryId" text, outcome text, runs int, "isRepeated" bool)
), changed AS (
  UPDATE ${this.table} AS entry SET outcome = settled.outcome, runs = settled.runs
  FROM settled WHERE entry.id = settled.id AND ("isRepeated" IS NULL OR entry.runs IS NULL OR entry.runs < settled.runs)
    AND (settled.outcome <> 'queued' OR settled.runs > 0 OR entry.outcome IN ('dead', 'queued'))
) SELECT "deliveryId" FROM settled WHERE id IS NULL`,
      [JSON.stringify([...last.values()])],
    );
    return unknown.map((row) => row['deliveryId'] as string);
  }

  override async find(id: string): Promise<InboxEntry | undefined> {
    const [row] = await this.connection.search(
      `SELECT ${COLUMNS}, content FROM ${this.table} WHERE id = $1::text`,
      [id],
    );
    return row && entryOf(row);
  }

  override async list(
    filter: InboxFilter,
    { after, limit }: { readonly after?: string | undefined; readonly limit: number },
  ): Promise<readonly InboxEntry[]> {
    const where = conditionsOf(filter, limit);
    where.add(after, (id) => `id < ${id}::text`);
    const rows = await this.connection.search(
      `SELECT ${COLUMNS} FROM ${this.table}${where.clause} ORDER BY id DESC LIMIT $1::int`,
      where.values,
    );
    return rows.map(entryOf);
  }

  override async erase(filter: InboxFilter): Promise<number> {
    const { clause, values } = conditionsOf(filter);
    const batch = `SELECT id FROM ${this.table}${clause} LIMIT ${DELETED_AT_ONCE}`;
    return this.deleteInBatches(`id = ANY (ARRAY(${batch}))`, values);
  }

  /** @param condition - of at most {@link DELETED_AT_ONCE} entries */
  private async deleteInBatches(condition: string, values: readonly unknown[]): Promise<number> {
    const statement = `WITH gone AS (DELETE FROM ${this.table} WHERE ${condition} RETURNING id) SELECT count(*)::int AS gone FROM gone`;
    return deleteInBatches(DELETED_AT_ONCE, async () => this.connection.query(statement, values));
  }

  override async counts(): Promise<{ readonly accepted: number; readonly refused: number }> {
    const [row] = await this.connection.query(
      `SELECT count(*) FILTER (WHERE NOT refused)::int AS accepted, count(*) FILTER (WHERE refused)::int AS refused FROM ${this.table}`,
      [],
    );
    return { accepted: Number(row?.['accepted']), refused: Number(row?.['refused']) };
  }

  /**
   * Deletes the entries of a kind beyond a bound: first those of a clock that was ahead, then the oldest. An index finds where they
   * end.
   *
   * @param latest - epoch milliseconds: later entries are of a clock that was ahead
   */
  private async prune(ofKind: string, bound: number, latest: number): Promise<void> {
    const count = `SELECT count(*) FROM ${this.table} WHERE ${ofKind}`;
    const last = `SELECT id FROM ${this.table} WHERE ${ofKind} AND at <= ${timeOf('$2')} ORDER BY id DESC LIMIT 1`;
    await this.connection.query(
      `DELETE FROM ${this.table} WHERE id = ANY (ARRAY(
  SELECT id FROM ${this.table} WHERE ${ofKind} AND id > (${last}) ORDER BY id DESC LIMIT greatest((${count}) - $1::int, 0)))`,
      [bound, latest],
    );
    await this.connection.query(
      `DELETE FROM ${this.table} WHERE ${ofKind} AND id <= (
  SELECT id FROM ${this.table} WHERE ${ofKind} ORDER BY id DESC OFFSET $1::int LIMIT 1)`,
      [bound],
    );
  }
}

const COLUMNS = `id, ${millisecondsOf('at')} AS at, outcome, runs, receiver, code, event, event_id, issuer, delivery_id, details`;

function conditionsOf(filter: InboxFilter, ...values: readonly unknown[]): Conditions {
  const { kind, since, until, eventId, ...equal } = filter;
  const conditions = new Conditions([...values]);
  if (kind !== undefined) conditions.always(kind === 'refused' ? 'refused' : 'NOT refused');
  conditions.add(since, (time) => `at >= ${timeOf(time)}`);
  conditions.add(until, (time) => `at < ${timeOf(time)}`);
  for (const [column, value] of Object.entries({ ...equal, event_id: eventId })) {
    conditions.add(value, (text) => `${column} = ${text}::text`);
  }
  return conditions;
}

/** The members that `find` returns and `list` does not; bytes in base64. */
interface StoredContent extends Pick<InboxEntry, 'headers' | 'explanation'> {
  readonly payload?: { readonly contentType: string; readonly base64: string };
}

function rowOf(entry: InboxEntry): object {
  const { id, at, outcome, runs, receiver, code, event, eventId, issuer, deliveryId, ...rest } =
    entry;
  const { headers, payload, explanation, ...details } = rest;
  const base64 = payload && Buffer.from(payload.bytes).toString('base64');
  const stored = payload && { contentType: payload.contentType, base64: base64! };
  const content = JSON.stringify({ headers, payload: stored, explanation });
  return {
    id,
    at,
    outcome,
    runs,
    receiver,
    code,
    event,
    event_id: eventId,
    issuer,
    delivery_id: deliveryId,
    // JSON inside a JSON string: a path or a header may contain characters that PostgreSQL refuses, and are escaped this way.
    details: JSON.stringify(details),
    content: content === '{}' ? null : content,
  };
}

function entryOf(row: Row): InboxEntry {
  const { payload, ...content } = JSON.parse((row['content'] ?? '{}') as string) as StoredContent;
  const { contentType, base64 } = payload ?? {};
  const optional = {
    receiver: row['receiver'],
    code: row['code'],
    event: row['event'],
    eventId: row['event_id'],
    issuer: row['issuer'],
    deliveryId: row['delivery_id'],
    runs: row['runs'] === null ? null : Number(row['runs']),
  };
  const present = Object.entries(optional).filter(([, value]) => value !== null);
  return {
    ...(JSON.parse(row['details'] as string) as Pick<
      InboxEntry,
      'status' | 'method' | 'path' | 'authenticated'
    >),
    ...(Object.fromEntries(present) as Partial<InboxEntry>),
    id: row['id'] as string,
    at: Number(row['at']),
    outcome: row['outcome'] as InboxOutcome,
    ...content,
    ...(base64 !== undefined && {
      payload: { contentType: contentType!, bytes: Buffer.from(base64, 'base64') },
    }),
  };
}
