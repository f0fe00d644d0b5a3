import type {
  DeliveryChange,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryStatus,
  LoggedAttempt,
  LoggedDelivery,
} from '../deliveries/delivery-log.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import { millisecondsOf, timeOf } from './sql-text.js';
import type { Row } from './store-connection.js';

/** The members of a delivery without a column of their own. */
type DeliveryDetails = Omit<OutgoingDelivery, 'payload'> & {
  readonly payload: Omit<OutgoingDelivery['payload'], 'bytes'>;
};

/**
 * A delivery as a row for `record`.
 *
 * @param due - epoch milliseconds
 * @param updatedAt - epoch milliseconds; an older change to `pending` is ignored
 */
export function recordedRow(delivery: OutgoingDelivery, due: number, updatedAt: number): object {
  const { id, eventId, event, endpointId, tenant, createdAt, payload, ...rest } = delivery;
  const { bytes, ...kind } = payload;
  return {
    id,
    event_id: eventId,
    event,
    endpoint_id: endpointId,
    tenant,
    details: JSON.stringify({ ...rest, payload: kind }),
    payload: bytes === undefined ? null : base64Of(bytes),
    due,
    created: createdAt,
    updated: updatedAt,
  };
}

/** A change as a row for `change`. */
export function changedRow(change: DeliveryChange): object {
  const { delivery, status, attempts, nextAttemptAt, reason, at, made } = change;
  const row = { id: delivery.id, status, attempts, due: nextAttemptAt, reason, at };
  if (made === undefined) return row;
  return {
    ...row,
    made_attempt: made.attempt,
    made_at: made.at,
    made_method: made.method,
    made_duration: made.durationMs,
    made_status: made.statusCode,
    made_reason: made.reason,
    made_answer: made.answer === undefined ? undefined : storableText(made.answer),
  };
}

export function loggedDeliveryOf(row: Row): LoggedDelivery {
  const { endpoint_id: endpointId, tenant, payload: octets, due, reason } = row;
  const { payload, ...rest } = JSON.parse(row['details'] as string) as DeliveryDetails;
  const bytes = octets === null ? undefined : Buffer.from(octets as Uint8Array);
  return {
    delivery: {
      ...rest,
      id: row['id'] as string,
      eventId: row['event_id'] as string,
      event: row['event'] as string,
      ...(endpointId !== null && { endpointId: endpointId as string }),
      ...(tenant !== null && { tenant: tenant as string }),
      payload: { ...payload, bytes },
      createdAt: Number(row['created']),
    },
    status: row['status'] as DeliveryStatus,
    attempts: Number(row['attempts']),
    ...(due !== null && { nextAttemptAt: Number(due) }),
    ...(reason !== null && { reason: reason as FailureReason }),
    updatedAt: Number(row['updated']),
  };
}

export function loggedAttemptOf(row: Row): LoggedAttempt {
  const { status_code: statusCode, reason, answer } = row;
  return {
    attempt: Number(row['attempt']),
    at: Number(row['made_at']),
    method: row['method'] as LoggedAttempt['method'],
    durationMs: Number(row['duration']),
    ...(statusCode !== null && { statusCode: Number(statusCode) }),
    ...(reason !== null && { reason: reason as FailureReason }),
    ...(answer !== null && { answer: answer as string }),
  };
}

export function deliveryCountsOf(row: Row): DeliveryCounts {
  const { endpoint_id: endpointId, tenant, due } = row;
  return {
    ...(endpointId !== null && { endpointId: endpointId as string }),
    ...(tenant !== null && { tenant: tenant as string }),
    pending: Number(row['pending']),
    delivered: Number(row['delivered']),
    dead: Number(row['dead']),
    ...(due !== null && { oldestDue: Number(due) }),
  };
}

function base64Of({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}

/** Replaces what PostgreSQL cannot store in a string: NUL and lone surrogates. */
function storableText(text: string): string {
  return Buffer.from(text).toString().replaceAll('\0', '\uFFFD');
}

/** A statement with its values. */
export type Query = readonly [statement: string, values: readonly unknown[]];

/** Deliveries that one statement removes. */
export const PRUNED_AT_ONCE = 1_000;

/** Constants, since a partial index is only used for a condition that the planner can compare with its own. */
const STATUS_CONDITIONS: Readonly<Record<DeliveryStatus, string>> = {
  pending: `status = 'pending'`,
  delivered: `status = 'delivered'`,
  dead: `status = 'dead'`,
};

/** The condition of a partial index. */
const UNFINISHED = `status <> 'delivered'`;

/** The statements of the delivery log. Every parameter is a string or a number, so that each library sends it alike. */
export class DeliveryLogStatements {
  /** `$1` a JSON list of `recordedRow`. */
  readonly record: string;

  /** `$1` a JSON list of `changedRow`, at most one for each delivery; returns a row for each known delivery. */
  readonly change: string;

  /** `$1` id. */
  readonly find: string;

  /** `$1` id. */
  readonly attempts: string;

  private readonly delivery: string;
  private readonly select: string;

  constructor(schema: string) {
    this.delivery = `${schema}.delivery`;
    const attempt = `${schema}.attempt`;
    // In the order of ids, here and below, so that two processes with the same deliveries cannot deadlock.
    this.record = `INSERT INTO ${this.delivery} (id, event_id, event, endpoint_id, tenant, details, payload, status, attempts,
  next_attempt_at, created_at, updated_at)
SELECT id, event_id, event, endpoint_id, tenant, details::json, decode(payload, 'base64'), 'pending', 0,
  ${timeOf('due')}, ${timeOf('created')}, ${timeOf('updated')}
FROM json_to_recordset($1::text::json) AS given(id text, event_id text, event text, endpoint_id text, tenant text,
  details text, payload text, due float8, created float8, updated float8)
ORDER BY id COLLATE "C"
ON CONFLICT (id) DO NOTHING`;
    this.change = `WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::text::json) AS given(id text, status text, attempts int, due float8, reason text,
    at float8, made_attempt int, made_at float8, made_method text, made_duration float8, made_status int, made_reason text,
    made_answer text)
), known AS MATERIALIZED (
  SELECT id FROM ${this.delivery} WHERE id = ANY (ARRAY(SELECT id FROM given))
  ORDER BY id FOR NO KEY UPDATE
), made AS (
  INSERT INTO ${attempt} (delivery_id, at, attempt, method, duration_ms, status_code, reason, answer)
  SELECT id, ${timeOf('made_at')}, made_attempt, made_method, made_duration, made_status, made_reason, made_answer
  FROM given JOIN known USING (id) WHERE made_attempt IS NOT NULL
  ON CONFLICT DO NOTHING
), changed AS (
  UPDATE ${this.delivery} AS delivery SET
    status = given.status,
    attempts = given.attempts,
    next_attempt_at = CASE WHEN given.status = 'pending' THEN ${timeOf('given.due')} END,
    reason = CASE WHEN given.status <> 'delivered' THEN coalesce(given.reason, delivery.reason) END,
    updated_at = ${timeOf('given.at')}
  FROM given JOIN known USING (id)
  WHERE delivery.id = given.id AND delivery.status <> 'delivered'
    AND (given.status <> 'pending' OR ${timeOf('given.at')} >= delivery.updated_at)
)
SELECT id FROM known`;
    this.select = `SELECT id, event_id, event, endpoint_id, tenant, details::text AS details, payload, status, attempts,
  ${millisecondsOf('next_attempt_at')} AS due, reason, ${millisecondsOf('created_at')} AS created,
  ${millisecondsOf('updated_at')} AS updated
FROM ${this.delivery}`;
    this.find = `${this.select} WHERE id = $1::text`;
    this.attempts = `SELECT attempt, ${millisecondsOf('at')} AS made_at, method, duration_ms AS duration, status_code, reason, answer
FROM ${attempt} WHERE delivery_id = $1::text ORDER BY at, attempt`;
  }

  list(filter: DeliveryFilter, { after, limit }: DeliveryPageRequest): Query {
    const values: unknown[] = [limit];
    const conditions = conditionsOf(filter, values);
    if (filter.status !== undefined) conditions.push(STATUS_CONDITIONS[filter.status]);
    if (after !== undefined) {
      values.push(after.createdAt, after.id);
      const [at, id] = [timeOf(`$${values.length - 1}`), `$${values.length}::text COLLATE "C"`];
      conditions.push(`(created_at, id) < (${at}, ${id})`);
    }
    return [
      `${this.select}${where(conditions)} ORDER BY created_at DESC, id DESC LIMIT $1::int`,
      values,
    ];
  }

  counts(filter: DeliveryFilter): Query {
    const values: unknown[] = [];
    const count = (status: DeliveryStatus): string =>
      `(count(*) FILTER (WHERE ${STATUS_CONDITIONS[status]}))::float8 AS ${status}`;
    return [
      `SELECT endpoint_id, tenant, ${count('pending')}, ${count('delivered')}, ${count('dead')},
  ${millisecondsOf(`min(next_attempt_at)`)} AS due
FROM ${this.delivery}${where(conditionsOf(filter, values))} GROUP BY endpoint_id, tenant`,
      values,
    ];
  }

  /** Removes a batch; returns a row with their number, less than {@link PRUNED_AT_ONCE} for the last batch. */
  prune(before: number, tenant: string | undefined): Query {
    const values: unknown[] = [];
    const conditions = [
      `status <> 'pending'`,
      ...conditionsOf({ until: before, tenant }, values),
    ].join(' AND ');
    // A locked row is being changed, by a statement that locks rows in another order.
    return [
      `WITH gone AS (
  DELETE FROM ${this.delivery} WHERE id = ANY (ARRAY(
    SELECT id FROM ${this.delivery} WHERE ${conditions} ORDER BY created_at, id LIMIT ${PRUNED_AT_ONCE} FOR UPDATE SKIP LOCKED
  )) RETURNING id
) SELECT count(*)::int AS gone FROM gone`,
      values,
    ];
  }
}

/** The conditions of a filter except its status; appends their parameters to `values`. */
function conditionsOf(filter: DeliveryFilter, values: unknown[]): string[] {
  const { tenant, endpointId, eventId, event, since, until, dueBefore, unfinished } = filter;
  const asked: readonly (readonly [unknown, (parameter: string) => string])[] = [
    [tenant, (parameter) => `tenant = ${parameter}::text`],
    [endpointId, (parameter) => `endpoint_id = ${parameter}::text`],
    [eventId, (parameter) => `event_id = ${parameter}::text`],
    [event, (parameter) => `event = ${parameter}::text`],
    [since, (parameter) => `created_at >= ${timeOf(parameter)}`],
    [until, (parameter) => `created_at < ${timeOf(parameter)}`],
    [
      dueBefore,
      (parameter) => `${STATUS_CONDITIONS.pending} AND next_attempt_at < ${timeOf(parameter)}`,
    ],
  ];
  const conditions = asked
    .filter(([value]) => value !== undefined)
    .map(([value, condition]) => condition(`$${values.push(value)}`));
  return unfinished === undefined ? conditions : [...conditions, UNFINISHED];
}

function where(conditions: readonly string[]): string {
  return conditions.length > 0 ? `\nWHERE ${conditions.join(' AND ')}` : '';
}
