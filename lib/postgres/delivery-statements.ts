import type {
  DeliveryCountFilter,
  DeliveryFilter,
  DeliveryPageRequest,
} from '../queue/webhook-queue.js';
import type { DeliveryStatus } from '../queue/webhook-delivery.js';
import { millisecondsOf, timeOf } from './sql-text.js';

/** A statement with its values. */
export type Query = readonly [statement: string, values: readonly unknown[]];

/** Deliveries that one statement deletes. */
export const DELETED_AT_ONCE = 1_000;

/** Milliseconds by which a clock may differ from the server's without being corrected. */
const AGREEMENT = 1_000;

/**
 * Whether a delivery can be claimed. An expired lease needs no statement of its own. What may start is decided by this
 * condition and its two indexes alone.
 */
function isClaimable(time: string): string {
  return `status = 'pending' AND due_at <= ${time} AND leased_until <= ${time}`;
}

/** Constants, since a partial index is only used for a condition that the planner can compare with its own. */
const STATUS_CONDITIONS: Readonly<Record<DeliveryStatus, string>> = {
  pending: `status = 'pending'`,
  delivered: `status = 'delivered'`,
  dead: `status = 'dead'`,
};

/** The columns of a delivery without its payload. */
const COLUMNS = `seq::text AS seq, id, event_id, event, endpoint_id, tenant, receiver, details::text AS details, status, attempts,
  reason, ${millisecondsOf('due_at')} AS due, ${millisecondsOf('created_at')} AS created, ${millisecondsOf('updated_at')} AS updated`;

/**
 * The statements of a queue on the tables `delivery` and `attempt`.
 *
 * `now` is a parameter: `null` for the clock of the server, which all processes share, or the time of a clock that the
 * application has passed to the queue. Lists of rows are one JSON parameter. Rows are locked one by one by their key
 * (`LATERAL`) and changed by a list of keys: without statistics, the planner may read the whole table for a join.
 */
export class DeliveryStatements {
  /**
   * `$1` queue, `$2` JSON list of rows of `deliveryRow`, `$3` now, `$4` time of this process, `$5` whether to fail with
   * SQLSTATE 55P03 instead of waiting for a transaction that records the same id, `$6` channel to notify or `null`.
   * Returns a row for each given one: `fresh`, or the columns of the known delivery.
   */
  readonly record: string;

  /**
   * `$1` JSON list of rows of `outcomeRow`, `$2` now, `$3` time of this process. Records outcomes with their attempts;
   * deliveries that this process no longer leases stay as they are.
   */
  readonly settle: string;

  /** `$1` JSON list of `{ seq, claim }`, `$2` now, `$3` lease in milliseconds. */
  readonly extend: string;

  /** `$1` queue, `$2` JSON list of ids. */
  readonly find: string;

  /** `$1` queue, `$2` id. */
  readonly attempts: string;

  /** `$1` queue, `$2` JSON list of ids, `$3` now, `$4` channel to notify or `null`. Returns the ids that were changed. */
  readonly redeliver: string;

  /** `$1` queue, `$2` JSON list of lanes, `$3` now. Returns the lanes with a due delivery. */
  readonly findDueLanes: string;

  private readonly delivery: string;
  private readonly attempt: string;
  /** Selects those of the rows of `given` that are still leased by their claim; a lock and a bracket follow. */
  private readonly leased: string;

  constructor(schema: string) {
    this.delivery = `${schema}.delivery`;
    this.attempt = `${schema}.attempt`;
    this.leased = `SELECT delivery.seq FROM (SELECT seq, claim FROM given ORDER BY seq) AS held, LATERAL (
    SELECT seq FROM ${this.delivery}
    WHERE seq = held.seq AND claim = held.claim AND status = 'pending' AND leased_until > '-infinity'`;
    this.record = `WITH moment AS MATERIALIZED (
  SELECT ${skew('$3', '$4')} AS skew, CASE WHEN $5::boolean THEN set_config('lock_timeout', '1s', true) END AS lock_timeout
), given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::text::json) AS given(place int, id text, event_id text, event text, endpoint_id text,
    tenant text, receiver text, lane text, details text, payload text, due float8, created float8)
), recorded AS (
  INSERT INTO ${this.delivery} (queue, id, event_id, event, endpoint_id, tenant, receiver, lane, details, payload, due_at,
    created_at, updated_at)
  SELECT $1::text, id, event_id, event, endpoint_id, tenant, receiver, lane, details::json, decode(payload, 'base64'),
    ${timeOf('(due + skew)')}, ${timeOf('created')}, ${timeOf('created')}
  FROM given, moment ORDER BY place
  ON CONFLICT (queue, id) DO NOTHING RETURNING id
), notified AS MATERIALIZED (
  SELECT pg_notify($6::text, $1::text) FROM recorded WHERE $6::text IS NOT NULL LIMIT 1
)
SELECT given.id AS given_id, recorded.id IS NOT NULL AS fresh, known.*
FROM given LEFT JOIN recorded USING (id) LEFT JOIN LATERAL (
  SELECT ${COLUMNS}, payload FROM ${this.delivery} AS delivery
  WHERE queue = $1::text AND delivery.id = given.id AND recorded.id IS NULL OFFSET 0
) AS known ON true
WHERE (SELECT count(*) FROM notified) >= 0`;
    this.settle = `WITH moment AS MATERIALIZED (SELECT ${skew('$2', '$3')} AS skew), given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::text::json) AS given(seq bigint, claim int, status text, due float8, attempts int,
    throws int, reason text, attempt int, started float8, duration float8, method text, status_code int, failure text,
    answer text)
), own AS MATERIALIZED (
  ${this.leased} FOR NO KEY UPDATE
  ) AS delivery
), made AS (
  INSERT INTO ${this.attempt} (delivery_seq, claim, attempt, started_at, duration_ms, method, status_code, reason, answer)
  SELECT seq, claim, attempt, ${timeOf('started')}, duration, method, status_code, failure, answer
  FROM given WHERE attempt IS NOT NULL AND seq IN (SELECT seq FROM own)
)
UPDATE ${this.delivery} AS delivery SET status = given.status, attempts = given.attempts, throws = given.throws,
  reason = CASE WHEN given.status <> 'delivered' THEN coalesce(given.reason, delivery.reason) END,
  due_at = coalesce(${timeOf('(given.due + skew)')}, due_at), leased_until = '-infinity', updated_at = ${now('$2')}
FROM given, moment WHERE delivery.seq = ANY (ARRAY(SELECT seq FROM own)) AND delivery.seq = given.seq`;
    this.extend = `WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::text::json) AS given(seq bigint, claim int)
), own AS MATERIALIZED (
  ${this.leased} FOR NO KEY UPDATE SKIP LOCKED
  ) AS delivery
)
UPDATE ${this.delivery} SET leased_until = ${now('$2')} + $3::float8 * interval '1 ms'
WHERE seq = ANY (ARRAY(SELECT seq FROM own))`;
    this.find = `SELECT ${COLUMNS}, payload FROM ${this.delivery}
WHERE queue = $1::text AND id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)))`;
    this.attempts = `SELECT attempt, ${millisecondsOf('started_at')} AS started, duration_ms AS duration, method, status_code,
  reason, answer
FROM ${this.attempt} WHERE delivery_seq = (SELECT seq FROM ${this.delivery} WHERE queue = $1::text AND id = $2::text)
ORDER BY started_at, claim`;
    this.redeliver = `WITH chosen AS MATERIALIZED (
  SELECT delivery.seq FROM (SELECT DISTINCT id FROM json_array_elements_text($2::text::json) AS id ORDER BY id) AS given, LATERAL (
    SELECT seq FROM ${this.delivery} AS delivery WHERE queue = $1::text AND delivery.id = given.id
      AND (status = 'dead' OR (status = 'pending' AND due_at > ${later('$3')} AND leased_until <= ${later('$3')}))
    FOR NO KEY UPDATE
  ) AS delivery
), changed AS (
  UPDATE ${this.delivery} SET status = 'pending', due_at = ${now('$3')}, updated_at = ${now('$3')}, claim = claim + 1,
    throws = 0, attempts = CASE WHEN status = 'dead' THEN 0 ELSE attempts END,
    reason = CASE WHEN status <> 'dead' THEN reason END
  WHERE seq = ANY (ARRAY(SELECT seq FROM chosen)) RETURNING id
), notified AS MATERIALIZED (
  SELECT pg_notify($4::text, $1::text) FROM changed WHERE $4::text IS NOT NULL LIMIT 1
)
SELECT id FROM changed WHERE (SELECT count(*) FROM notified) >= 0`;
    this.findDueLanes = `SELECT given.lane FROM json_array_elements_text($2::text::json) AS given(lane), LATERAL (
  SELECT FROM ${this.delivery} AS delivery
  WHERE queue = $1::text AND delivery.lane = given.lane AND ${isClaimable(now('$3'))}
  ORDER BY due_at, seq LIMIT 1
) AS due`;
  }

  /**
   * Claims due deliveries, the one due first first, up to the free slots of each lane. A claim changes no indexed column,
   * so that no index is written.
   *
   * Without a claimed delivery it returns one row with `due_in`, the milliseconds until the next one is due.
   */
  claim(
    queue: string,
    time: number | null,
    lease: number,
    { limit, lookAhead, lanes, perLane, lane, maxAge }: ClaimRequest,
  ): Query {
    const values: unknown[] = [
      queue,
      time,
      lease,
      limit,
      JSON.stringify(lanes),
      perLane,
      lookAhead,
    ];
    const slots = `coalesce(($5::text::jsonb ->> lane)::int, $6::int)`;
    const conditions = [
      isClaimable(now('$2')),
      `${slots} > 0`,
      ...(lane === undefined ? [] : [`lane = $${values.push(lane)}::text`]),
      ...(maxAge === undefined
        ? []
        : [`due_at >= ${now('$2')} - $${values.push(maxAge)}::float8 * interval '1 ms'`]),
    ];
    return [
      `WITH due AS MATERIALIZED (
  SELECT seq, lane, row_number() OVER () AS place FROM (
    SELECT seq, lane FROM ${this.delivery} WHERE queue = $1::text AND ${conditions.join(' AND ')}
    ORDER BY due_at, seq LIMIT $4::int FOR UPDATE SKIP LOCKED
  ) AS candidates
), ranked AS (
  SELECT seq, ${slots} AS slots, row_number() OVER (PARTITION BY lane ORDER BY place) AS rank FROM due
), claimed AS (
  UPDATE ${this.delivery} SET claim = claim + 1, leased_until = ${now('$2')} + $3::float8 * interval '1 ms'
  WHERE seq = ANY (ARRAY(SELECT seq FROM ranked WHERE rank <= slots))
  RETURNING seq AS key, ${COLUMNS}, payload, claim, lane, throws
)
SELECT claimed.*, CASE WHEN claimed.key IS NULL THEN (
  SELECT extract(epoch FROM min(due_at) - ${now('$2')})::float8 * 1000 FROM ${this.delivery}
  WHERE queue = $1::text AND status = 'pending'
    AND due_at > ${now('$2')} AND due_at <= ${now('$2')} + $7::float8 * interval '1 ms'
) END AS due_in
FROM (SELECT) AS one LEFT JOIN (claimed JOIN due ON due.seq = claimed.key) ON true ORDER BY place`,
      values,
    ];
  }

  list(queue: string, filter: DeliveryFilter, { after, limit }: DeliveryPageRequest): Query {
    const values: unknown[] = [queue, limit];
    const conditions = conditionsOf(filter, values);
    if (after !== undefined) {
      const at = timeOf(`$${values.push(after.createdAt)}`);
      conditions.push(`(created_at, id) < (${at}, $${values.push(after.id)}::text COLLATE "C")`);
    }
    return [
      `SELECT ${COLUMNS} FROM ${this.delivery} WHERE ${conditions.join(' AND ')}
ORDER BY created_at DESC, id DESC LIMIT $2::int`,
      values,
    ];
  }

  counts(queue: string, { unfinished, step, ...filter }: DeliveryCountFilter): Query {
    const values: unknown[] = [queue];
    const conditions = conditionsOf(filter, values);
    const groups = ['endpoint_id', 'tenant', 'receiver'];
    if (step !== undefined) {
      const [since, length] = [filter.since ?? 0, step].map(
        (one) => `$${values.push(one)}::float8`,
      );
      // date_part counts in double precision, which is faster than the numeric of extract.
      const age = `date_part('epoch', created_at - ${timeOf(since!)}) * 1000`;
      groups.push(`(${since} + floor(${age} / ${length}) * ${length})`);
    }
    // The condition of a partial index.
    if (unfinished === true) conditions.push(`status <> 'delivered'`);
    const count = (status: DeliveryStatus): string =>
      `(count(*) FILTER (WHERE ${STATUS_CONDITIONS[status]}))::float8 AS ${status}`;
    return [
      `SELECT endpoint_id, tenant, receiver, ${groups[3] ?? 'NULL'} AS at, ${count('pending')}, ${count('delivered')}, ${count('dead')},
  ${millisecondsOf(`min(due_at) FILTER (WHERE status = 'pending')`)} AS due
FROM ${this.delivery} WHERE ${conditions.join(' AND ')} GROUP BY ${groups.join(', ')}`,
      values,
    ];
  }

  /** Deletes finished deliveries that were recorded before a time; see {@link DeliveryStatements.deleteOldest}. */
  prune(queue: string, before: number, tenant: string | undefined): Query {
    const values: unknown[] = [queue];
    const conditions = conditionsOf({ until: before, tenant }, values);
    return [
      this.deleteOldest([...conditions, `status <> 'pending'`].join(' AND '), 'created_at, id'),
      values,
    ];
  }

  /** Deletes deliveries that were delivered some milliseconds ago; see {@link DeliveryStatements.deleteOldest}. */
  deleteDelivered(queue: string, keep: number, time: number | null): Query {
    const expired = `updated_at <= ${now('$2')} - $3::float8 * interval '1 ms'`;
    return [
      this.deleteOldest(`queue = $1::text AND status = 'delivered' AND ${expired}`, 'updated_at'),
      [queue, time, keep],
    ];
  }

  /**
   * Deletes a batch with its attempts and returns one row with their number, which is less than {@link DELETED_AT_ONCE} for
   * the last batch. A locked row is being changed, by a statement that locks rows in another order.
   */
  private deleteOldest(condition: string, order: string): string {
    return `WITH old AS MATERIALIZED (
  SELECT seq FROM ${this.delivery} WHERE ${condition} ORDER BY ${order} LIMIT ${DELETED_AT_ONCE} FOR UPDATE SKIP LOCKED
), made AS (
  DELETE FROM ${this.attempt} WHERE delivery_seq = ANY (ARRAY(SELECT seq FROM old))
), gone AS (
  DELETE FROM ${this.delivery} WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING seq
)
SELECT count(*)::int AS gone FROM gone`;
  }
}

/** What to claim. */
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
  /** Claims only deliveries that became due within so many milliseconds. */
  readonly maxAge?: number | undefined;
}

/** The time: of the server, or of the clock that the application has set. */
function now(parameter: string): string {
  return `coalesce(${timeOf(parameter)}, now())`;
}

/** As `now`, but not the start of the statement: it may have waited for one that has made the delivery due. */
function later(parameter: string): string {
  return `coalesce(${timeOf(parameter)}, clock_timestamp())`;
}

/**
 * Milliseconds to add to a time of this process so that it is one of the server. Clocks that almost agree are not corrected,
 * so that equal times stay equal.
 */
function skew(nowParameter: string, ownParameter: string): string {
  const ahead = `${millisecondsOf(later(nowParameter))} - ${ownParameter}::float8`;
  return `CASE WHEN abs(${ahead}) < ${AGREEMENT} THEN 0 ELSE ${ahead} END`;
}

/** The conditions of a filter; `$1` is the queue, and other parameters are appended to `values`. */
function conditionsOf(filter: DeliveryFilter, values: unknown[]): string[] {
  const { tenant, endpointId, receiver, eventId, event, status, since, until } = filter;
  const asked: readonly (readonly [unknown, (parameter: string) => string])[] = [
    [tenant, (parameter) => `tenant = ${parameter}::text`],
    [endpointId, (parameter) => `endpoint_id = ${parameter}::text`],
    [receiver, (parameter) => `receiver = ${parameter}::text`],
    [eventId, (parameter) => `event_id = ${parameter}::text`],
    [event, (parameter) => `event = ${parameter}::text`],
    [since, (parameter) => `created_at >= ${timeOf(parameter)}`],
    [until, (parameter) => `created_at < ${timeOf(parameter)}`],
  ];
  return [
    'queue = $1::text',
    ...(status === undefined ? [] : [STATUS_CONDITIONS[status]]),
    ...asked
      .filter(([value]) => value !== undefined)
      .map(([value, condition]) => condition(`$${values.push(value)}`)),
  ];
}
