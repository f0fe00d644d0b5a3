import { isLimited, LEAST_RATE, LEAST_SHARE, limitsKey, RECOVERY } from '../queue/lane-limits.js';
import type { DeliveryLimits } from '../queue/webhook-delivery.js';
import type { Row } from './database.js';
import { type ClaimedDelivery, claimedDelivery, type OutcomeRow } from './delivery-row.js';
import { COLUMNS, isClaimable } from './delivery-table.js';
import type { QueueConnection } from './queue-connection.js';
import { later as laterOf, millisecondsOf, now as nowOf } from './sql-text.js';

/** Deliveries that one statement takes out of the index of unlimited ones. */
const FLAGGED_AT_ONCE = 1_000;

/** Whether a delivery of a limited lane is waiting for its due time or due, and not for its key: the condition of its index. */
const IS_LIMITED_WAITING = `status = 'pending' AND NOT held AND limited`;
const LIMIT_COLUMNS = `'concurrency', concurrency, 'perSecond', per_second, 'burst', burst, 'since', since`;
const NOW = nowOf('$2');
const LATER = millisecondsOf(laterOf('$3'));

/** A limited lane after a claim. */
interface LimitedLane {
  readonly lane: string;
  /** Equal for equal limits. */
  readonly limits: string;
  /** Milliseconds until more may be claimed; `undefined` if none is due soon. */
  readonly wait: number | undefined;
  /** Whether more may be claimed once an attempt has ended. */
  readonly isFull: boolean;
}

/**
 * The table `delivery_limit`, which has a row for each lane that has or had limits, and claims from these lanes.
 *
 * Rate: a token bucket in the form of one time, `full_at`, when all of its tokens are available again, with `token_ms`, the
 * milliseconds of one token since the last start. When a pause ends, at most one token is available. Concurrency: `running` has the
 * claims that have started. One that ended is removed; one whose process died counts until the lease of its delivery has expired.
 * For as long as a statement may take, a claim counts without a look at its delivery: one that began before does not see the
 * lease yet.
 *
 * Times are numbers, in epoch milliseconds, since all of them are calculated with.
 */
export class DeliveryLimitTable {
  private readonly table: string;
  private readonly deliveries: string;

  constructor(private readonly connection: QueueConnection) {
    this.table = `${connection.schema}.delivery_limit`;
    this.deliveries = `${connection.schema}.delivery`;
  }

  /**
   * Claims due deliveries of limited lanes, as far as their limits and `slots` allow.
   *
   * @returns also the lanes, without those that another process is claiming from
   */
  async claimWithinLimits(
    lanes: readonly { readonly lane: string; readonly slots: number }[],
  ): Promise<{
    readonly claimed: readonly ClaimedDelivery[];
    readonly lanes: readonly LimitedLane[];
  }> {
    const { connection, table: limit, deliveries: delivery } = this;
    const { options, schema } = connection;
    const statement = `WITH moment AS MATERIALIZED (SELECT ${millisecondsOf(NOW)} AS ms), gate AS MATERIALIZED (
  SELECT limits.*, given.slots FROM (
    SELECT lane, slots FROM json_to_recordset($4::text::json) AS given(lane text, slots int) ORDER BY lane
  ) AS given, LATERAL (
    SELECT * FROM ${limit} AS limits WHERE queue = $1::text AND limits.lane = given.lane FOR NO KEY UPDATE SKIP LOCKED
  ) AS limits
), started AS MATERIALIZED (
  SELECT gate.lane, jsonb_object_agg(slot.key, slot.value) AS running, count(*) AS used
  FROM gate, moment, LATERAL jsonb_each(gate.running) AS slot
  WHERE slot.value::float8 > ms OR EXISTS (
    SELECT FROM ${delivery} AS delivery WHERE delivery.seq = split_part(slot.key, ':', 1)::bigint
      AND claim = split_part(slot.key, ':', 2)::int AND CASE status WHEN 'pending' THEN leased_until > ${NOW} END OFFSET 0)
  GROUP BY gate.lane
), bucket AS MATERIALIZED (
  SELECT gate.*, coalesce(started.running, '{}') AS still_running, coalesce(used, 0) AS used, ms,
    ${token('per_second', share('gate', 'ms'))} AS next_token
  FROM gate CROSS JOIN moment LEFT JOIN started USING (lane)
), level AS MATERIALIZED (
  SELECT *, greatest(0, full_at - ms, paused_until + (burst - 1) * last_token - ms) / last_token AS used_tokens
  FROM bucket, LATERAL (SELECT coalesce(token_ms, next_token) AS last_token) AS last
), allowed AS MATERIALIZED (
  SELECT *, CASE WHEN paused_until > ms THEN 0 ELSE
    greatest(0, least(slots, concurrency - used, floor(burst - used_tokens + 1e-6))) END AS free
  FROM level
), due AS MATERIALIZED (
  SELECT due.seq, row_number() OVER () AS place FROM allowed, LATERAL (
    SELECT seq FROM ${delivery} AS delivery WHERE queue = $1::text AND delivery.lane = allowed.lane AND ${isClaimable(schema, NOW)}
    ORDER BY due_at, seq LIMIT allowed.free::bigint FOR UPDATE SKIP LOCKED
  ) AS due
), claimed AS (
  UPDATE ${delivery} SET claim = claim + 1, leased_until = ${NOW} + $3::float8 * interval '1 ms'
  WHERE seq = ANY (ARRAY(SELECT seq FROM due))
  RETURNING seq AS key, ${COLUMNS}, payload, claim, lane, throws
), taken AS MATERIALIZED (
  SELECT lane, count(*) AS taken, jsonb_object_agg(key || ':' || claim, ms + $6::float8) AS running
  FROM claimed, moment GROUP BY lane
), changed AS MATERIALIZED (
  SELECT allowed.*, coalesce(taken, 0) AS taken, still_running || coalesce(taken.running, '{}') AS all_running,
    CASE WHEN taken > 0 THEN next_token ELSE last_token END AS token
  FROM allowed LEFT JOIN taken USING (lane)
), written AS (
  UPDATE ${limit} AS limits SET token_ms = token,
    full_at = coalesce(ms + (used_tokens + changed.taken) * token, limits.full_at),
    running = CASE WHEN changed.concurrency IS NULL THEN '{}' ELSE changed.all_running END, used_at = ${NOW}
  FROM changed WHERE changed.taken > 0 AND limits.queue = $1::text AND limits.lane = changed.lane
)
SELECT claimed.*, lanes FROM (
  SELECT json_agg(json_build_object('lane', lane, ${LIMIT_COLUMNS},
    'isFull', used + taken >= concurrency OR taken >= slots, 'wait', CASE
      WHEN paused_until > ms THEN paused_until - ms
      WHEN taken < free THEN (
        SELECT extract(epoch FROM due_at - ${NOW})::float8 * 1000 FROM ${delivery} AS delivery
        WHERE queue = $1::text AND delivery.lane = changed.lane AND status = 'pending' AND NOT held
          AND due_at > ${NOW} AND due_at <= ${NOW} + $5::float8 * interval '1 ms'
        ORDER BY due_at, seq LIMIT 1)
      WHEN used + taken >= concurrency THEN $5::float8
      ELSE greatest(0, (used_tokens + taken - burst + 1) * token) END))::text AS lanes
  FROM changed
) AS one LEFT JOIN (claimed JOIN due ON due.seq = claimed.key) ON true ORDER BY place`;
    const { name, now, timeout = options.timeout } = connection;
    const values = [name, now, options.lease, JSON.stringify(lanes), options.pollInterval, timeout];
    const rows = await connection.queryInIndexOrder(statement, values);
    const states = JSON.parse((rows[0]!['lanes'] as string | null) ?? '[]') as LimitedLaneState[];
    const found = states.map(({ lane, wait, isFull, ...state }) => ({
      lane,
      limits: limitsKey(state),
      wait: wait ?? undefined,
      isFull: isFull === true,
    }));
    const limits = new Map(found.map((one) => [one.lane, one.limits]));
    const claimed = rows
      .filter(({ seq }) => seq !== null)
      .map((row) => claimedDelivery(row, limits.get(row['lane'] as string)));
    return { claimed, lanes: found };
  }

  /** Searches for flagged lanes with deliveries that are due soon. */
  async findLanes(): Promise<{
    /** Whether any lane has limits. */
    readonly hasLimits: boolean;
    readonly lanes: readonly Omit<LimitedLane, 'isFull'>[];
    /** Lanes whose limits were deleted, and that are still flagged. */
    readonly unlimited: readonly string[];
  }> {
    const { connection, table: limit, deliveries: delivery } = this;
    // One look into the index for each lane, however many deliveries it has.
    const statement = `WITH RECURSIVE lanes AS (
  (SELECT lane FROM ${delivery} WHERE queue = $1::text AND ${IS_LIMITED_WAITING} ORDER BY lane LIMIT 1)
  UNION ALL
  SELECT (SELECT lane FROM ${delivery} AS delivery WHERE queue = $1::text AND ${IS_LIMITED_WAITING} AND delivery.lane > lanes.lane
    ORDER BY lane LIMIT 1) FROM lanes WHERE lane IS NOT NULL
)
SELECT EXISTS (SELECT FROM ${limit} WHERE queue = $1::text) AS has_limits, waiting.* FROM (SELECT) AS one LEFT JOIN (
  SELECT lane, greatest(0, extract(epoch FROM first.due_at - ${NOW})::float8 * 1000) AS wait,
    (SELECT json_build_object(${LIMIT_COLUMNS}) FROM ${limit} AS limits
      WHERE queue = $1::text AND limits.lane = lanes.lane)::text AS limits
  FROM lanes, LATERAL (
  SELECT due_at FROM ${delivery} AS delivery WHERE queue = $1::text AND delivery.lane = lanes.lane
    AND status = 'pending' AND NOT held ORDER BY due_at, seq LIMIT 1
) AS first WHERE first.due_at <= ${NOW} + $3::float8 * interval '1 ms'
) AS waiting ON true`;
    const values = [connection.name, connection.now, connection.options.pollInterval];
    const rows = await connection.queryInIndexOrder(statement, values);
    const found = rows.filter(({ lane }) => lane !== null);
    return {
      hasLimits: rows[0]!['has_limits'] === true,
      lanes: found
        .filter(({ limits }) => limits !== null)
        .map(({ lane, wait, limits }) => ({
          lane: lane as string,
          wait: Number(wait),
          limits: limitsKey(JSON.parse(limits as string) as DeliveryLimits),
        })),
      unlimited: found.filter(({ limits }) => limits === null).map(({ lane }) => lane as string),
    };
  }

  /** Takes the deliveries of newly limited lanes out of the index of unlimited ones, or puts them back into it. */
  async flag(lanes: readonly string[], limited: boolean): Promise<void> {
    const { connection, deliveries: delivery } = this;
    const statement = `UPDATE ${delivery} SET limited = ${limited} WHERE seq = ANY (ARRAY(
  SELECT seq FROM ${delivery} WHERE queue = $1::text AND lane = $2::text AND status = 'pending' AND NOT held
    AND ${limited ? 'NOT limited' : 'limited'}
  ORDER BY due_at, seq LIMIT ${FLAGGED_AT_ONCE} FOR UPDATE SKIP LOCKED
)) RETURNING seq`;
    for (const lane of lanes) {
      let flagged: readonly Row[];
      do {
        flagged = await connection.queryInIndexOrder(statement, [connection.name, lane]);
      } while (flagged.length === FLAGGED_AT_ONCE);
    }
  }

  /** Frees the slots of ended runs. If it fails, they are free once the leases would have expired. */
  async end(rows: readonly OutcomeRow[]): Promise<void> {
    const { connection, table: limit } = this;
    const statement = `WITH moment AS MATERIALIZED (
  SELECT ${LATER} AS ms
), ended AS MATERIALIZED (
  SELECT lane, array_agg(slot) AS slots, max(overloaded) - $4::float8 AS pause
  FROM json_to_recordset($2::text::json) AS given(lane text, slot text, overloaded float8) GROUP BY lane
), own AS MATERIALIZED (
  SELECT own.lane FROM (SELECT lane FROM ended ORDER BY lane) AS given, LATERAL (
    SELECT lane FROM ${limit} AS limits WHERE queue = $1::text AND limits.lane = given.lane FOR NO KEY UPDATE
  ) AS own
)
UPDATE ${limit} AS limits SET running = limits.running - slots,
  share = CASE WHEN pause IS NULL OR paused_until > ms THEN share
    ELSE greatest(${LEAST_SHARE}, ${share('limits', 'ms')} / 2) END,
  paused_until = greatest(paused_until, ms + pause),
  slowed_at = CASE WHEN pause IS NULL THEN slowed_at ELSE greatest(paused_until, ms + pause) END
FROM ended, moment WHERE limits.queue = $1::text AND limits.lane = ended.lane AND limits.lane IN (SELECT lane FROM own)`;
    const ended = rows.map(({ lane, slot, overloaded }) => ({ lane, slot, overloaded }));
    const values = [connection.name, JSON.stringify(ended), connection.now, connection.clock.now()];
    await connection.query(statement, values);
  }

  /**
   * Stores the limits of an endpoint, unless its delivery was claimed by the same.
   *
   * @returns whether they were stored
   */
  async update({ lane, limits }: ClaimedDelivery, current: DeliveryLimits): Promise<boolean> {
    if (limits === undefined ? !isLimited(current) : limits === limitsKey(current)) return false;
    await this.set(new Map([[lane, current]]));
    return true;
  }

  /**
   * Sets limits by lane. Another `since` ends a pause and the slower rate of an overload; tokens that are used stay used.
   *
   * @returns the lanes whose limits were other ones
   */
  async set(limits: ReadonlyMap<string, DeliveryLimits>): Promise<readonly string[]> {
    const { connection, table: limit } = this;
    const isSameSince = 'limits.since IS NOT DISTINCT FROM excluded.since';
    const oldToken = `coalesce(limits.token_ms, ${token('limits.per_second', share('limits', LATER))})`;
    const newShare = `CASE WHEN ${isSameSince} THEN ${share('limits', LATER)} ELSE 1 END`;
    const newToken = token('excluded.per_second', newShare);
    const statement = `WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::text::json) AS given(lane text, concurrency int, per_second float8, burst float8, since float8)
)
INSERT INTO ${limit} AS limits (queue, lane, concurrency, per_second, burst, since, used_at)
SELECT $1::text, lane, concurrency, per_second, burst, since, ${laterOf('$3')} FROM given
WHERE CASE WHEN EXISTS (SELECT FROM ${limit} AS known WHERE known.queue = $1::text AND known.lane = given.lane)
  THEN NOT EXISTS (SELECT FROM ${limit} AS known WHERE known.queue = $1::text AND known.lane = given.lane
    AND (known.concurrency, known.per_second, known.burst, known.since)
      IS NOT DISTINCT FROM (given.concurrency, given.per_second, given.burst, given.since))
  ELSE concurrency IS NOT NULL OR per_second IS NOT NULL END
ORDER BY lane
ON CONFLICT (queue, lane) DO UPDATE SET concurrency = excluded.concurrency, per_second = excluded.per_second,
  burst = excluded.burst, since = excluded.since,
  paused_until = CASE WHEN ${isSameSince} THEN limits.paused_until ELSE 0 END,
  share = CASE WHEN ${isSameSince} THEN limits.share ELSE 1 END,
  token_ms = ${newToken}, full_at = coalesce(${LATER} + greatest(0, limits.full_at - ${LATER}) / ${oldToken} * ${newToken}, 0)
RETURNING lane`;
    const rows = [...limits].map(([lane, { concurrency, perSecond, burst, since }]) => {
      return { lane, concurrency, per_second: perSecond, burst, since };
    });
    const values = [connection.name, JSON.stringify(rows), connection.now];
    return (await connection.query(statement, values)).map(({ lane }) => lane as string);
  }
}

/** A member without a value is `null`. */
interface LimitedLaneState extends DeliveryLimits {
  readonly lane: string;
  readonly wait: number | null;
  readonly isFull: boolean | null;
}

/** The part of its rate that a lane has at a time. */
function share(row: string, time: string): string {
  return `least(1, ${row}.share + greatest(0, ${time} - ${row}.slowed_at) / ${RECOVERY})`;
}

/** Milliseconds of a token; `NULL` without a rate. */
function token(rate: string, part: string): string {
  return `CASE WHEN ${rate} IS NOT NULL THEN 1000 / (greatest(${rate}, ${LEAST_RATE}) * ${part}) END`;
}
