import {
  COUNT_GRAIN,
  type DeliveryCountFilter,
  type DeliveryFilter,
  type DeliveryPageRequest,
} from '../queue/webhook-queue.js';
import type { DeliveryKeyState, DeliveryStatus } from '../queue/webhook-delivery.js';
import { COLUMNS, type Query } from './delivery-statements.js';
import { millisecondsOf, timeOf } from './sql-text.js';

/** Constants, since a partial index is only used for a condition that the planner can compare with its own. */
const STATUS_CONDITIONS: Readonly<Record<DeliveryStatus, string>> = {
  pending: `status = 'pending'`,
  delivered: `status = 'delivered'`,
  dead: `status = 'dead'`,
};

const KEY_CONDITIONS: Readonly<Record<DeliveryKeyState, string>> = {
  waiting: `status = 'pending' AND holds_key AND held`,
  blocking: `status = 'dead' AND holds_key`,
};

export class ListStatements {
  constructor(private readonly schema: string) {}

  /** `$1` queue, `$2` id. */
  get attempts(): string {
    return `SELECT attempt, ${millisecondsOf('started_at')} AS started, duration_ms AS duration, method, status_code,
  reason, answer, signed
FROM ${this.schema}.attempt WHERE delivery_seq = (SELECT seq FROM ${this.schema}.delivery WHERE queue = $1::text AND id = $2::text)
ORDER BY started_at, claim`;
  }

  list(queue: string, filter: DeliveryFilter, { after, limit }: DeliveryPageRequest): Query {
    const values: unknown[] = [queue, limit];
    const conditions = conditionsOf(filter, values);
    if (after !== undefined) {
      const at = timeOf(`$${values.push(after.createdAt)}`);
      conditions.push(`(created_at, id) < (${at}, $${values.push(after.id)}::text COLLATE "C")`);
    }
    return [
      `SELECT ${COLUMNS} FROM ${this.schema}.delivery WHERE ${conditions.join(' AND ')}
ORDER BY created_at DESC, id DESC LIMIT $2::int`,
      values,
    ];
  }

  /** Reads only what is pending where times and steps allow: finished deliveries are counted. */
  counts(queue: string, { unfinished, step, ...filter }: DeliveryCountFilter): Query {
    const values: unknown[] = [queue];
    const conditions = conditionsOf(filter, values).join(' AND ');
    const stepOf = this.stepOf(filter.since ?? 0, step, values);
    const isCounted = [filter.since, filter.until, step].every(
      (time) => time === undefined || time % COUNT_GRAIN === 0,
    );
    const count = (status: DeliveryStatus): string =>
      `count(*) FILTER (WHERE ${STATUS_CONDITIONS[status]}) AS ${status}`;
    // The conditions of a partial index.
    const read = isCounted
      ? `AND status = 'pending'`
      : unfinished
        ? `AND status <> 'delivered'`
        : '';
    const isDue = `status = 'pending' AND NOT (holds_key AND held)`;
    const parts = [
      `SELECT endpoint_id, tenant, receiver, ${stepOf('created_at')} AS at, ${count('pending')}, ${count('delivered')}, ${count('dead')},
    count(*) FILTER (WHERE ${KEY_CONDITIONS.waiting}) AS held,
    ${millisecondsOf(`min(due_at) FILTER (WHERE ${isDue})`)} AS due, max(lane) FILTER (WHERE ${isDue} AND limited) AS lane
  FROM ${this.schema}.delivery WHERE ${conditions} ${read} GROUP BY 1, 2, 3, 4`,
    ];
    if (isCounted) {
      const delivered = unfinished === true ? '0' : 'sum(delivered)';
      parts.push(`SELECT endpoint_id, tenant, receiver, ${stepOf('created_at')}, 0, ${delivered}, sum(dead), 0, NULL, NULL
  FROM (
    SELECT at AS created_at, nullif(endpoint_id, '') AS endpoint_id, nullif(tenant, '') AS tenant, nullif(receiver, '') AS receiver,
      delivered, dead FROM ${this.schema}.delivery_count WHERE ${conditions.replaceAll('created_at', 'at')}
    UNION ALL SELECT created_at, endpoint_id, tenant, receiver, delivered, dead FROM ${this.schema}.delivery_change WHERE ${conditions}
  ) AS ended GROUP BY 1, 2, 3, 4 HAVING ${delivered} + sum(dead) > 0`);
    }
    // The deliveries of an endpoint are in one lane. Those that wait for its limits are not late.
    const sum = (name: DeliveryStatus | 'held'): string => `sum(${name})::float8 AS ${name}`;
    return [
      `SELECT endpoint_id, tenant, receiver, at, ${sum('pending')}, ${sum('delivered')}, ${sum('dead')}, ${sum('held')},
  greatest(min(due), (SELECT greatest(${millisecondsOf('used_at')}, paused_until, full_at - (burst - 1) * token_ms)
    FROM ${this.schema}.delivery_limit AS limits WHERE queue = $1::text AND limits.lane = max(counted.lane)
      AND (concurrency IS NOT NULL OR per_second IS NOT NULL))) AS due
FROM (
  ${parts.join('\n  UNION ALL ')}
) AS counted GROUP BY endpoint_id, tenant, receiver, at`,
      values,
    ];
  }

  /** When the step of a time begins, in epoch milliseconds. */
  private stepOf(
    since: number,
    step: number | undefined,
    values: unknown[],
  ): (time: string) => string {
    if (step === undefined) return () => 'NULL::float8';
    const [start, length] = [since, step].map((one) => `$${values.push(one)}::float8`);
    // date_part counts in double precision, which is faster than the numeric of extract.
    return (time) =>
      `(${start} + floor(date_part('epoch', ${time} - ${timeOf(start!)}) * 1000 / ${length}) * ${length})`;
  }
}

/** The conditions of a filter; `$1` is the queue, and other parameters are appended to `values`. */
export function conditionsOf(filter: DeliveryFilter, values: unknown[]): string[] {
  const { tenant, endpointId, subject, receiver, eventId, event, status, keyState, since, until } =
    filter;
  const asked: readonly (readonly [unknown, (parameter: string) => string])[] = [
    [tenant, (parameter) => `tenant = ${parameter}::text`],
    [endpointId, (parameter) => `endpoint_id = ${parameter}::text`],
    [subject, (parameter) => `subject = ${parameter}::text`],
    [receiver, (parameter) => `receiver = ${parameter}::text`],
    [eventId, (parameter) => `event_id = ${parameter}::text`],
    [event, (parameter) => `event = ${parameter}::text`],
    [since, (parameter) => `created_at >= ${timeOf(parameter)}`],
    [until, (parameter) => `created_at < ${timeOf(parameter)}`],
  ];
  return [
    'queue = $1::text',
    ...(status === undefined ? [] : [STATUS_CONDITIONS[status]]),
    ...(keyState === undefined ? [] : [KEY_CONDITIONS[keyState]]),
    ...asked
      .filter(([value]) => value !== undefined)
      .map(([value, condition]) => condition(`$${values.push(value)}`)),
  ];
}
