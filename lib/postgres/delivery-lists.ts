import {
  COUNT_GRAIN,
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type ListedDelivery,
} from '../queue/webhook-queue.js';
import type {
  DeliveryAttempt,
  DeliveryKeyState,
  DeliveryStatus,
} from '../queue/webhook-delivery.js';
import { attemptOf, countsOf, listedDelivery } from './delivery-row.js';
import { COLUMNS } from './delivery-table.js';
import type { QueueConnection } from './queue-connection.js';
import { Conditions, millisecondsOf, skew, timeOf } from './sql-text.js';

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

const FILTER_COLUMNS = {
  tenant: 'tenant',
  endpointId: 'endpoint_id',
  subject: 'subject',
  receiver: 'receiver',
  eventId: 'event_id',
  event: 'event',
} as const;

/** Lists and counts of deliveries. */
export class DeliveryLists {
  private readonly schema: string;

  constructor(private readonly connection: QueueConnection) {
    this.schema = connection.schema;
  }

  async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    const statement = `SELECT attempt, ${millisecondsOf('started_at')} AS started, duration_ms AS duration, method, status_code,
  reason, answer, signed
FROM ${this.schema}.attempt WHERE delivery_seq = (SELECT seq FROM ${this.schema}.delivery WHERE queue = $1::text AND id = $2::text)
ORDER BY started_at, claim`;
    const rows = await this.connection.search(statement, [this.connection.name, id]);
    return rows.map(attemptOf);
  }

  async list(
    filter: DeliveryFilter,
    { after, limit }: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    const where = conditionsOf(filter, this.connection.name, limit);
    where.after(after && [after.createdAt, after.id], '(created_at, id)');
    const statement = `SELECT ${COLUMNS} FROM ${this.schema}.delivery${where.clause}
ORDER BY created_at DESC, id DESC LIMIT $2::int`;
    return (await this.connection.search(statement, where.values)).map(listedDelivery);
  }

  /** Reads only what is pending where times and steps allow: finished deliveries are counted. */
  async counts({
    unfinished,
    step,
    ...filter
  }: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    const { text: conditions, values } = conditionsOf(filter, this.connection.name);
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
    const { clock, now: time } = this.connection;
    const [server, own] = [time, clock.now()].map((value) => `$${values.push(value)}`);
    // The deliveries of an endpoint are in one lane. Those that wait for its limits are not late. The time is one of this process.
    const sum = (name: DeliveryStatus | 'held'): string => `sum(${name})::float8 AS ${name}`;
    const statement = `SELECT endpoint_id, tenant, receiver, at, ${sum('pending')}, ${sum('delivered')}, ${sum('dead')}, ${sum('held')},
  greatest(min(due), (SELECT greatest(${millisecondsOf('used_at')}, paused_until, full_at - (burst - 1) * token_ms)
    FROM ${this.schema}.delivery_limit AS limits WHERE queue = $1::text AND limits.lane = max(counted.lane)
      AND (concurrency IS NOT NULL OR per_second IS NOT NULL))) - (${skew(server!, own!)}) AS due
FROM (
  ${parts.join('\n  UNION ALL ')}
) AS counted GROUP BY endpoint_id, tenant, receiver, at`;
    return (await this.connection.search(statement, values)).map(countsOf);
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

/** The conditions of a filter; `$1` is the queue. @param values - the queue, and others that the statement has */
export function conditionsOf(filter: DeliveryFilter, ...values: readonly unknown[]): Conditions {
  const { status, keyState, since, until } = filter;
  const conditions = new Conditions([...values]);
  conditions.always('queue = $1::text');
  if (status !== undefined) conditions.always(STATUS_CONDITIONS[status]);
  if (keyState !== undefined) conditions.always(KEY_CONDITIONS[keyState]);
  for (const [member, column] of Object.entries(FILTER_COLUMNS)) {
    conditions.add(
      filter[member as keyof typeof FILTER_COLUMNS],
      (text) => `${column} = ${text}::text`,
    );
  }
  conditions.add(since, (time) => `created_at >= ${timeOf(time)}`);
  conditions.add(until, (time) => `created_at < ${timeOf(time)}`);
  return conditions;
}
