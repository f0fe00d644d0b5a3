import { pendingRecord } from '../queue/delivery-list.js';
import { type DeliveryRecord, takesTurn } from '../queue/webhook-delivery.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { Row, RunStatement } from './database.js';
import {
  type ClaimedDelivery,
  claimedDelivery,
  deliveryRows,
  type OutcomeRow,
  recordOf,
} from './delivery-row.js';
import { idList, type KeyedParts, lockingKeys, numbering } from './key-turns.js';
import type { QueueConnection } from './queue-connection.js';
import {
  HAS_WRITTEN,
  later,
  millisecondsOf,
  now,
  settingLockTimeout,
  skew,
  timeOf,
} from './sql-text.js';
import { runInTransaction } from './transactions.js';

/** `lock_timeout` of a commit that several calls share: if one of them has to wait, each gets a commit of its own. */
const SHORT_WAIT = '1s';

/** Whether a delivery is waiting for its due time or due, and not for its key: the condition of the index by lane. */
export const IS_WAITING = `status = 'pending' AND NOT held`;
/** The same for the index by due time, which leaves out what may wait for a limit. */
const IS_UNLIMITED = `${IS_WAITING} AND NOT limited`;

/** The columns of a delivery without its payload. */
export const COLUMNS = `seq::text AS seq, id, event_id, event, endpoint_id, tenant, subject, receiver, details::text AS details, status, attempts,
  reason, sequence::float8 AS sequence, ordering_key, holds_key, held,
  limited AND leased_until = '-infinity' AS limited, payload_dropped, ${millisecondsOf('due_at')} AS due,
  ${millisecondsOf('created_at')} AS created, ${millisecondsOf('updated_at')} AS updated`;

/**
 * Whether the row `delivery` can be claimed. An expired lease needs no statement of its own. What may start is decided by this
 * condition and its indexes alone.
 */
export function isClaimable(schema: string, time: string): string {
  return `${IS_WAITING} AND due_at <= ${time} AND leased_until <= ${time} AND (NOT holds_key OR NOT EXISTS (
      SELECT FROM ${schema}.delivery AS earlier WHERE earlier.queue = delivery.queue AND earlier.lane = delivery.lane
        AND earlier.ordering_key = delivery.ordering_key AND earlier.holds_key AND earlier.sequence < delivery.sequence))`;
}

/**
 * The table of deliveries, and that of their attempts.
 *
 * `now` is a parameter: `null` for the clock of the server, which all processes share, or the time of a clock that the
 * application has passed to the queue. Lists of rows are one JSON parameter. Rows are locked one by one by their key
 * (`LATERAL`) and changed by a list of keys: without statistics, the planner may read the whole table for a join. Other conditions on
 * rows with a given key are a `CASE`, which hides them from the planner: it would read a partial index that was small when the
 * statistics were made, such as that of unfinished deliveries before a backlog.
 */
export class DeliveryTable {
  private readonly schema: string;
  /** Runs a statement outside any transaction. */
  private readonly runAlone: RunStatement = async (...query) => this.connection.query(...query);

  constructor(private readonly connection: QueueConnection) {
    this.schema = connection.schema;
  }

  /**
   * Records deliveries.
   *
   * @param how - `waits`: for transactions that record the same ids or keys, instead of failing with SQLSTATE 55P03; `isJoined`: in a
   *   transaction of the caller
   * @returns the known ones, `seq` of those that wait for their key, and the limited lanes among theirs
   */
  async record(
    deliveries: readonly EnqueuedDelivery[],
    how: { readonly notifies: boolean; readonly waits: boolean; readonly isJoined?: boolean },
    run = this.runAlone,
  ): Promise<{
    readonly records: readonly (DeliveryRecord | undefined)[];
    readonly held: readonly string[];
    readonly limitedLanes: readonly string[];
  }> {
    if (deliveries.length === 0) return { records: [], held: [], limitedLanes: [] };
    const { clock, name, now: time, channel } = this.connection;
    const first = new Map<string, EnqueuedDelivery>();
    for (const item of deliveries) {
      if (!first.has(item.delivery.id)) first.set(item.delivery.id, item);
    }
    const isKeyed = haveTurns(deliveries);
    const { given, payloads } = deliveryRows([...first.values()]);
    const isLocked = isKeyed && how.waits;
    const { isJoined = false } = how;
    const lockTimeout = how.waits ? this.connection.lockTimeout : SHORT_WAIT;
    const hasRows = (found: readonly Row[]): boolean => found.length > 0;
    const runOnce: RunStatement = async (...query) =>
      isJoined ? runInTransaction(run, ...query, hasRows) : run(...query);
    if (isLocked) await runOnce(lockingKeys(this.schema), [name, given, lockTimeout, isJoined]);
    // Without a lock on the keys, another transaction that records one of the ids would leave a number out.
    const onConflict = isKeyed && !isLocked ? '' : SKIP_KNOWN;
    const parts = isKeyed ? { ...numbering(this.schema), onConflict } : PLAIN;
    const rows = await runOnce(this.recording(parts), [
      name,
      given,
      time,
      clock.now(),
      lockTimeout,
      how.notifies ? channel : null,
      isJoined,
      payloads,
    ]);
    if (!hasRows(rows)) throw new Error('transaction is closed');
    const fresh = new Set(rows.filter(({ fresh }) => fresh === true).map((row) => row['given_id']));
    const known = new Map(
      rows.filter(({ id }) => id !== null).map((row) => [row['id'] as string, recordOf(row)]),
    );
    const unseen = [...first.keys()].filter((id) => !fresh.has(id) && !known.has(id));
    // Another transaction has committed them after the snapshot of the statement.
    if (unseen.length > 0) {
      for (const [id, record] of await this.find(unseen, run)) known.set(id, record);
    }
    const records = deliveries.map(({ delivery: { id } }) => {
      // The first of several with the same id was recorded.
      if (fresh.delete(id)) return undefined;
      // A caller's transaction with an old snapshot does not see the delivery that its insert conflicted with.
      return known.get(id) ?? pendingRecord(first.get(id)!);
    });
    const held = rows.filter((row) => row['recorded_held'] === true);
    const limited = rows.flatMap(({ limited_lane: lane }) =>
      typeof lane === 'string' ? [lane] : [],
    );
    return {
      records,
      held: held.map((row) => row['recorded_seq'] as string),
      limitedLanes: [...new Set(limited)],
    };
  }

  /**
   * `$1` queue, `$2` JSON list of rows of `deliveryRows`, `$3` now, `$4` time of this process, `$5` `lock_timeout` or `null`, `$6` channel
   * to notify or `null`, `$7` whether it runs in a transaction of the caller, `$8` JSON list of payloads in base64, to whose places from 1
   * the rows refer. Returns a row for each given one: `fresh`, or the columns of the known delivery. With `$7`, it returns none and does
   * nothing unless {@link HAS_WRITTEN}. It fails with SQLSTATE 55P03 if it waits too long for a transaction that records the same id;
   * without `onConflict` with 23505.
   */
  private recording({ numbered, source, number, holdsKey, held, onConflict }: KeyedParts): string {
    // Sorted before payloads are added to the rows: a sort writes large ones to disk.
    return `WITH moment AS MATERIALIZED (
  SELECT ${skew('$3', '$4')} AS skew, ${settingLockTimeout('$5')} WHERE NOT $7::boolean OR ${HAS_WRITTEN}
), given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::text::json) AS given(place int, id text, event_id text, event text, endpoint_id text,
    tenant text, receiver text, lane text, details text, payload int, due float8, created float8, ordering_key text,
    sequence bigint, subject text)
  WHERE NOT $7::boolean OR ${HAS_WRITTEN}
)${numbered}, recorded AS (
  INSERT INTO ${this.schema}.delivery (queue, id, event_id, event, endpoint_id, tenant, receiver, lane, details, payload, due_at,
    created_at, updated_at, ordering_key, sequence, holds_key, held, limited, subject)
  SELECT $1::text, id, event_id, event, endpoint_id, tenant, receiver, lane, details::json, (ARRAY(
      SELECT decode(bytes, 'base64') FROM json_array_elements_text($8::text::json) WITH ORDINALITY AS list(bytes, place) ORDER BY place
    ))[payload],
    ${timeOf('(due + skew)')}, ${timeOf('created')}, ${timeOf('created')}, ordering_key, ${number}, ${holdsKey}, ${held},
    EXISTS (SELECT FROM ${this.schema}.delivery_limit AS limits WHERE queue = $1::text AND limits.lane = given.lane OFFSET 0), subject
  FROM (SELECT * FROM ${source} ORDER BY place) AS given, moment ORDER BY place
  ${onConflict} RETURNING id, seq, held, limited
), notified AS MATERIALIZED (
  SELECT pg_notify($6::text, $1::text) FROM recorded WHERE $6::text IS NOT NULL LIMIT 1
)
SELECT given.id AS given_id, recorded.id IS NOT NULL AS fresh, recorded.seq::text AS recorded_seq, recorded.held AS recorded_held,
  CASE WHEN recorded.limited THEN given.lane END AS limited_lane,
  CASE WHEN $7::boolean AND (SELECT count(*) FROM recorded) >= 0
    THEN set_config('lock_timeout', (SELECT before FROM moment), true) END AS lock_timeout,
  known.*
FROM given LEFT JOIN recorded USING (id) LEFT JOIN LATERAL (
  SELECT ${COLUMNS}, payload FROM ${this.schema}.delivery AS delivery
  WHERE queue = $1::text AND delivery.id = given.id AND recorded.id IS NULL OFFSET 0
) AS known ON true
WHERE (SELECT count(*) FROM notified) >= 0`;
  }

  /**
   * Claims due deliveries, the one due first first, up to the free slots of each lane. A claim changes no indexed column,
   * so that no index is written. If the claim before has no outcome, the process of a received event died in its run, which counts:
   * an event that kills each process must not be run forever.
   *
   * With `checksLimits`, deliveries of lanes that were found to have limits are claimed by `DeliveryLimitTable.claimWithinLimits` from then on.
   */
  async claimDeliveries({
    limit,
    lookAhead,
    lanes,
    perLane,
    lane,
    maxAge,
    checksLimits = lane !== undefined,
  }: ClaimRequest): Promise<ClaimResult> {
    const { name, now: time, options } = this.connection;
    const values = [name, time, options.lease, limit, JSON.stringify(lanes), perLane, lookAhead];
    const slots = `coalesce(($5::text::jsonb ->> lane)::int, $6::int)`;
    const conditions = [
      isClaimable(this.schema, now('$2')),
      `${slots} > 0`,
      // Without statistics, the condition of the index by due time would make the planner prefer it.
      lane === undefined ? 'NOT limited' : `lane = $${values.push(lane)}::text`,
      ...(maxAge === undefined
        ? []
        : [`due_at >= ${now('$2')} - $${values.push(maxAge)}::float8 * interval '1 ms'`]),
    ];
    const isLimited = `EXISTS (
    SELECT FROM ${this.schema}.delivery_limit AS limits WHERE queue = $1::text AND limits.lane = due.lane OFFSET 0)`;
    const ranked = `ranked${checksLimits ? ' AS MATERIALIZED' : ' AS'} (
  SELECT seq, lane, ${slots} AS slots, row_number() OVER (PARTITION BY lane ORDER BY place) AS rank,
    ${checksLimits ? isLimited : 'false'} AS limited FROM due
)`;
    const flagged = `flagged AS (
  UPDATE ${this.schema}.delivery SET limited = true WHERE seq = ANY (ARRAY(SELECT seq FROM ranked WHERE limited))
), `;
    const found =
      '(SELECT json_agg(DISTINCT lane)::text FROM ranked WHERE limited) AS limited_lanes, ';
    const statement = `WITH due AS MATERIALIZED (
  SELECT seq, lane, due_at, row_number() OVER () AS place FROM (
    SELECT seq, lane, due_at FROM ${this.schema}.delivery AS delivery WHERE queue = $1::text AND ${conditions.join(' AND ')}
    ORDER BY due_at, seq LIMIT $4::int FOR UPDATE SKIP LOCKED
  ) AS candidates
), ${ranked}, ${checksLimits ? flagged : ''}claimed AS (
  UPDATE ${this.schema}.delivery SET claim = claim + 1, leased_until = ${now('$2')} + $3::float8 * interval '1 ms',
    attempts = attempts + CASE WHEN receiver IS NOT NULL AND leased_until > '-infinity' THEN 1 ELSE 0 END
  WHERE seq = ANY (ARRAY(SELECT seq FROM ranked WHERE rank <= slots AND NOT limited))
  RETURNING seq AS key, ${COLUMNS}, payload, claim, lane, throws
)
SELECT claimed.*, ${checksLimits ? found : ''}extract(epoch FROM coalesce(due.due_at, (
  SELECT min(due_at) FROM ${this.schema}.delivery WHERE queue = $1::text AND ${IS_UNLIMITED}
    AND due_at > ${now('$2')} AND due_at <= ${now('$2')} + $7::float8 * interval '1 ms'
)) - ${now('$2')})::float8 * 1000 AS due_in
FROM (SELECT) AS one LEFT JOIN (claimed JOIN due ON due.seq = claimed.key) ON true ORDER BY place`;
    const rows = await this.connection.queryInIndexOrder(statement, values);
    const [{ seq, due_in: dueIn, limited_lanes: limited }] = rows as [Row];
    const limitedLanes =
      typeof limited === 'string' ? (JSON.parse(limited) as string[]) : undefined;
    const claimed = seq === null ? [] : rows.map((row) => claimedDelivery(row));
    return { claimed, dueIn: dueIn === null ? undefined : Number(dueIn), limitedLanes };
  }

  /** Returns those of the lanes that have a due delivery. */
  async findDueLanes(lanes: readonly string[]): Promise<string[]> {
    const statement = `SELECT given.lane FROM json_array_elements_text($2::text::json) AS given(lane), LATERAL (
  SELECT FROM ${this.schema}.delivery AS delivery
  WHERE queue = $1::text AND delivery.lane = given.lane AND ${isClaimable(this.schema, now('$3'))}
  ORDER BY due_at, seq LIMIT 1
) AS due`;
    const { name, now: time } = this.connection;
    const values = [name, JSON.stringify(lanes), time];
    const rows = await this.connection.queryInIndexOrder(statement, values);
    return rows.map(({ lane }) => lane as string);
  }

  /** Renews the leases of deliveries that are still leased by their claims. */
  async extend(claimed: readonly ClaimedDelivery[]): Promise<void> {
    const statement = `WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::text::json) AS given(seq bigint, id text, claim int)
), own AS MATERIALIZED (
  ${this.leased} FOR NO KEY UPDATE SKIP LOCKED
  ) AS delivery
)
UPDATE ${this.schema}.delivery SET leased_until = ${now('$2')} + $3::float8 * interval '1 ms'
WHERE seq = ANY (ARRAY(SELECT seq FROM own))`;
    const held = claimed.map(({ seq, id, claim }) => ({ seq, id, claim }));
    const { now: time, options } = this.connection;
    await this.connection.query(statement, [JSON.stringify(held), time, options.lease]);
  }

  /**
   * Records outcomes with their attempts, and counts what has ended; deliveries that this process no longer leases stay as they are.
   *
   * @returns the `seq` of those that have given up their keys, for {@link KeyTurns.releaseNext}. The last one of a key is left out: the
   *   transaction that records the next one waits for the lock on the key, and so for this commit
   */
  async recordOutcomes(outcomes: readonly OutcomeRow[]): Promise<string[]> {
    const statement = `WITH moment AS MATERIALIZED (SELECT ${skew('$2', '$3')} AS skew), given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::text::json) AS given(seq bigint, id text, claim int, status text, due float8, attempts int,
    throws int, reason text, attempt int, started float8, duration float8, method text, status_code int, failure text,
    answer text, signed text, blocks_key boolean, releases boolean)
), own AS MATERIALIZED (
  ${this.leased} FOR NO KEY UPDATE
  ) AS delivery
), made AS (
  INSERT INTO ${this.schema}.attempt (delivery_seq, claim, attempt, started_at, duration_ms, method, status_code, reason, answer, signed)
  SELECT seq, claim, attempt, ${timeOf('started')}, duration, method, status_code, failure, answer, signed
  FROM given WHERE attempt IS NOT NULL AND seq IN (SELECT seq FROM own)
), changed AS (
  UPDATE ${this.schema}.delivery AS delivery SET status = given.status, attempts = given.attempts, throws = given.throws,
  reason = CASE WHEN given.status <> 'delivered' THEN coalesce(given.reason, delivery.reason) END,
  due_at = coalesce(${timeOf('(given.due + skew)')}, due_at), leased_until = '-infinity', updated_at = ${now('$2')},
  holds_key = holds_key AND (given.status = 'pending' OR (given.status = 'dead' AND coalesce(given.blocks_key, false)))
  FROM given, moment WHERE delivery.seq = ANY (ARRAY(SELECT seq FROM own)) AND delivery.seq = given.seq
  RETURNING delivery.status, delivery.queue, delivery.created_at, delivery.endpoint_id, delivery.tenant, delivery.receiver
), counted AS (
  ${counting(this.schema, 'changed', 1)}
), last AS MATERIALIZED (
  SELECT given.seq FROM given, LATERAL (
    SELECT queue, lane, ordering_key, sequence FROM ${this.schema}.delivery AS delivery WHERE delivery.seq = given.seq OFFSET 0
  ) AS delivery, LATERAL (
    SELECT FROM ${this.schema}.delivery_key AS key WHERE key.queue = delivery.queue AND key.lane = delivery.lane
      AND key.ordering_key = delivery.ordering_key AND key.sequence = delivery.sequence FOR NO KEY UPDATE SKIP LOCKED
  ) AS key WHERE given.releases
)
SELECT seq::text AS seq FROM given WHERE releases AND seq NOT IN (SELECT seq FROM last)`;
    const { now: time, clock } = this.connection;
    const values = [JSON.stringify(outcomes), time, clock.now()];
    const released = await this.connection.query(statement, values);
    return released.map(({ seq }) => seq as string);
  }

  /**
   * Selects those of the rows of `given` that are still leased by their claim; a lock and a bracket follow. A database that was restored
   * to an earlier time gives each `seq` again, to another delivery.
   */
  private get leased(): string {
    return `SELECT delivery.seq FROM (SELECT seq, id, claim FROM given ORDER BY seq) AS held, LATERAL (
    SELECT seq FROM ${this.schema}.delivery
    WHERE seq = held.seq AND claim = held.claim AND CASE status WHEN 'pending' THEN id = held.id AND leased_until > '-infinity' END`;
  }

  /** @returns the known ones, by id */
  async find(ids: readonly string[], run = this.runAlone): Promise<Map<string, DeliveryRecord>> {
    const statement = `SELECT ${COLUMNS}, payload FROM ${this.schema}.delivery
WHERE queue = $1::text AND id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)))`;
    const rows = await run(statement, [this.connection.name, idList(ids)]);
    return new Map(rows.map((row) => [row['id'] as string, recordOf(row)]));
  }

  /** @returns the rows that were changed, with `id` */
  async redeliver(ids: readonly string[], notifies: boolean): Promise<readonly Row[]> {
    const statement = `WITH chosen AS MATERIALIZED (
  SELECT delivery.* FROM (SELECT DISTINCT id FROM json_array_elements_text($2::text::json) AS id ORDER BY id) AS given, LATERAL (
    SELECT seq, status, queue, created_at, endpoint_id, tenant, receiver FROM ${this.schema}.delivery AS delivery WHERE queue = $1::text AND delivery.id = given.id
      AND CASE status WHEN 'dead' THEN true WHEN 'pending' THEN due_at > ${later('$3')} AND leased_until <= ${later('$3')} END
    FOR NO KEY UPDATE
  ) AS delivery
), changed AS (
  UPDATE ${this.schema}.delivery SET status = 'pending', due_at = ${now('$3')}, updated_at = ${now('$3')}, claim = claim + 1,
    throws = 0, attempts = CASE WHEN status = 'dead' THEN 0 ELSE attempts END,
    reason = CASE WHEN status <> 'dead' THEN reason END
  WHERE seq = ANY (ARRAY(SELECT seq FROM chosen)) RETURNING id
), counted AS (
  ${counting(this.schema, 'chosen', -1)}
), notified AS MATERIALIZED (
  SELECT pg_notify($4::text, $1::text) FROM changed WHERE $4::text IS NOT NULL LIMIT 1
)
SELECT id FROM changed WHERE (SELECT count(*) FROM notified) >= 0`;
    const { name, now: time, channel } = this.connection;
    return this.connection.query(statement, [name, idList(ids), time, notifies ? channel : null]);
  }
}

/** Leaves a delivery as it is that another transaction has recorded. */
const SKIP_KNOWN = 'ON CONFLICT (queue, id) DO NOTHING';

/** For rows without an ordering key, or that had their turn before. */
const PLAIN: KeyedParts = {
  numbered: '',
  source: 'given',
  number: 'sequence',
  holdsKey: 'false',
  held: 'false',
  onConflict: SKIP_KNOWN,
};

export interface ClaimRequest {
  /** Free slots in total. */
  readonly limit: number;
  /** Milliseconds ahead in which the next due delivery is looked for if none is due now. */
  readonly lookAhead: number;
  /** Free slots of every lane that `lanes` does not list. */
  readonly perLane: number;
  /** Free slots by lane. */
  readonly lanes: Readonly<Record<string, number>>;
  /** Claims deliveries of this lane only. */
  readonly lane?: string | undefined;
  /** Whether a lane may have got limits after some of its deliveries were recorded; default: only with `lane`. */
  readonly checksLimits?: boolean | undefined;
  /** Claims only deliveries that became due within so many milliseconds. */
  readonly maxAge?: number | undefined;
}

export interface ClaimResult {
  readonly claimed: readonly ClaimedDelivery[];
  /**
   * Milliseconds until the first one that was claimed is due, which are not positive; if none was, until the next one is, if that is
   * within `lookAhead`.
   */
  readonly dueIn?: number | undefined;
  /** Lanes that were found to have limits. */
  readonly limitedLanes?: readonly string[] | undefined;
}

/** Records that the finished ones of some rows are more, or fewer; `QueueUpkeep.mergeCounts` adds it to the counts. */
export function counting(schema: string, rows: string, change: 1 | -1): string {
  return `INSERT INTO ${schema}.delivery_change (queue, created_at, endpoint_id, tenant, receiver, delivered, dead)
SELECT queue, created_at, endpoint_id, tenant, receiver, CASE status WHEN 'delivered' THEN ${change} ELSE 0 END,
  CASE status WHEN 'dead' THEN ${change} ELSE 0 END
FROM ${rows} WHERE status <> 'pending'`;
}

/** Whether one of the deliveries waits for the earlier ones of its key. */
export function haveTurns(deliveries: readonly EnqueuedDelivery[]): boolean {
  return deliveries.some(({ delivery }) => takesTurn(delivery));
}
