import type {
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryStatus,
} from '../deliveries/delivery-log.js';
import { millisecondsOf, timeOf } from './sql-text.js';

/** A statement with its values. */
export type Question = readonly [statement: string, values: readonly unknown[]];

/** Deliveries that one statement forgets. */
export const PRUNED_AT_ONCE = 1_000;

/** Written out, since an index over a part of the statuses is only found by a constant. */
const STATUS_CONDITIONS: Readonly<Record<DeliveryStatus, string>> = {
  pending: `status = 'pending'`,
  delivered: `status = 'delivered'`,
  dead: `status = 'dead'`,
};

/** The statements of the delivery log. Every parameter is a text or a number, so that each library sends it alike. */
export class DeliveryLogStatements {
  /** `$1` a list of what `recordedRow` gives. */
  readonly record: string;

  /** `$1` a list of what `changedRow` gives, one a delivery; a row for each delivery that is known. */
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
    // In the order of ids, here and below, so that two processes at the same deliveries do not wait for one another.
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

  list(filter: DeliveryFilter, { after, limit }: DeliveryPageRequest): Question {
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

  counts(filter: DeliveryFilter): Question {
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

  /** Forgets some; a row tells how many, and fewer than {@link PRUNED_AT_ONCE} where that were all. */
  prune(before: number, tenant: string | undefined): Question {
    const values: unknown[] = [];
    const conditions = [
      `status <> 'pending'`,
      ...conditionsOf({ until: before, tenant }, values),
    ].join(' AND ');
    return [
      `WITH gone AS (
  DELETE FROM ${this.delivery} WHERE id = ANY (ARRAY(
    SELECT id FROM ${this.delivery} WHERE ${conditions} ORDER BY created_at, id LIMIT ${PRUNED_AT_ONCE} FOR UPDATE
  )) RETURNING id
) SELECT count(*)::int AS gone FROM gone`,
      values,
    ];
  }
}

/** What a filter asks for but the status; its values are added to those given. */
function conditionsOf(filter: DeliveryFilter, values: unknown[]): string[] {
  const { tenant, endpointId, eventId, event, since, until, dueBefore } = filter;
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
  return asked
    .filter(([value]) => value !== undefined)
    .map(([value, condition]) => condition(`$${values.push(value)}`));
}

function where(conditions: readonly string[]): string {
  return conditions.length > 0 ? `\nWHERE ${conditions.join(' AND ')}` : '';
}
