import { KEPT_UNUSED } from '../queue/queue-options.js';
import type { DeliveryFilter } from '../queue/webhook-queue.js';
import { counting, IS_WAITING, type Query } from './delivery-statements.js';
import { conditionsOf } from './list-statements.js';
import { countedAt, now } from './sql-text.js';

/** Changes of counts that one statement merges. */
export const MERGED_AT_ONCE = 5_000;

/** Deliveries that one statement deletes. */
export const DELETED_AT_ONCE = 1_000;

/** The statements that merge counts, and delete what is past its retention or was asked to be deleted. Each works in batches. */
export class UpkeepStatements {
  constructor(private readonly schema: string) {}

  /**
   * `$1` queue. Adds a batch of changes to the counts, and returns one row with their number, which is less than {@link MERGED_AT_ONCE}
   * for the last batch, and with the number of `emptied` counts, which are 0 now. Rows are counted in the order of their keys, so that several processes do not deadlock.
   */
  get merge(): string {
    return `WITH merged AS (
  DELETE FROM ${this.schema}.delivery_change WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ${this.schema}.delivery_change WHERE queue = $1::text LIMIT ${MERGED_AT_ONCE} FOR UPDATE SKIP LOCKED))
  RETURNING *
), counted AS (
  INSERT INTO ${this.schema}.delivery_count AS total (queue, at, endpoint_id, tenant, receiver, delivered, dead)
  SELECT queue, ${countedAt('created_at')}, coalesce(endpoint_id, ''), coalesce(tenant, ''), coalesce(receiver, ''),
    sum(delivered), sum(dead)
  FROM merged GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
  ON CONFLICT (queue, at, endpoint_id, tenant, receiver)
    DO UPDATE SET delivered = total.delivered + excluded.delivered, dead = total.dead + excluded.dead
  RETURNING total.delivered, total.dead
)
SELECT (SELECT count(*)::int FROM merged) AS merged,
  (SELECT count(*)::int FROM counted WHERE delivered = 0 AND dead = 0) AS emptied`;
  }

  /**
   * `$1` queue, `$2` now, `$3` milliseconds. Drops the payloads of a batch of deliveries that were delivered so long ago, unless another
   * process is doing so. Returns one row with the number of deliveries that it looked at, which is less than {@link DELETED_AT_ONCE}
   * for the last batch. It starts again from the oldest one after a clock that was ahead.
   */
  get dropPayloads(): string {
    const until = `${now('$2')} - $3::float8 * interval '1 ms'`;
    return `WITH known AS (
  INSERT INTO ${this.schema}.delivery_retention (queue) VALUES ($1::text) ON CONFLICT (queue) DO NOTHING
), turn AS MATERIALIZED (
  SELECT * FROM ${this.schema}.delivery_retention WHERE queue = $1::text FOR NO KEY UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT delivery.* FROM turn, LATERAL (
    SELECT seq, updated_at FROM ${this.schema}.delivery AS delivery WHERE queue = $1::text AND status = 'delivered'
      AND updated_at > CASE WHEN payloads_until <= ${until} THEN payloads_until ELSE '-infinity' END AND updated_at <= ${until}
    ORDER BY updated_at FETCH FIRST ${DELETED_AT_ONCE} ROWS WITH TIES
  ) AS delivery
), dropped AS (
  UPDATE ${this.schema}.delivery SET payload = NULL, payload_dropped = true
  WHERE seq = ANY (ARRAY(SELECT seq FROM old)) AND payload IS NOT NULL
), moved AS (
  UPDATE ${this.schema}.delivery_retention SET payloads_until = (SELECT max(updated_at) FROM old)
  WHERE queue = $1::text AND EXISTS (SELECT FROM old)
)
SELECT count(*)::int AS seen FROM old`;
  }

  /**
   * `$1` queue, `$2` now, `$3` lane and `$4` ordering key: the last one of the page before, or two empty strings. Deletes those keys of a
   * page that have not been used for {@link KEPT_UNUSED}. Returns one row with the number of keys that it looked at, which is less than
   * {@link DELETED_AT_ONCE} for the last page, and the last one of them.
   */
  get deleteUnusedKeys(): string {
    return this.deletingUnused(`${this.schema}.delivery_key`, ['lane', 'ordering_key']);
  }

  /**
   * As {@link deleteUnusedKeys}, for the limits of lanes without pending deliveries, without `$4`. A transaction that records one
   * meanwhile may still see the limits: `LimitStatements.findLanes` finds its lane.
   */
  get deleteUnusedLimits(): string {
    return this.deletingUnused(
      `${this.schema}.delivery_limit`,
      ['lane'],
      `AND NOT EXISTS (SELECT FROM ${this.schema}.delivery AS delivery WHERE queue = $1::text AND delivery.lane = one.lane AND ${IS_WAITING})
      AND NOT EXISTS (SELECT FROM ${this.schema}.delivery AS delivery WHERE queue = $1::text AND delivery.lane = one.lane AND holds_key)`,
    );
  }

  /** `$1` queue. Deletes the counts of what was deleted. */
  get deleteEmptyCounts(): string {
    return `DELETE FROM ${this.schema}.delivery_count WHERE queue = $1::text AND delivered = 0 AND dead = 0`;
  }

  /** Deletes finished deliveries that were recorded before a time; see {@link UpkeepStatements.deleteOldest}. */
  prune(queue: string, before: number, tenant: string | undefined): Query {
    const values: unknown[] = [queue];
    const conditions = conditionsOf({ until: before, tenant }, values);
    return [
      this.deleteOldest([...conditions, `status <> 'pending'`].join(' AND '), 'created_at, id'),
      values,
    ];
  }

  /**
   * Deletes deliveries in any state, except those that are being attempted: their requests may still be sent. See
   * {@link UpkeepStatements.deleteOldest}.
   */
  erase(queue: string, filter: DeliveryFilter, time: number | null): Query {
    const values: unknown[] = [queue];
    const conditions = conditionsOf(filter, values);
    conditions.push(`leased_until <= ${now(`$${values.push(time)}`)}`);
    return [this.deleteOldest(conditions.join(' AND '), 'created_at, id'), values];
  }

  /** Deletes deliveries that were delivered some milliseconds ago; see {@link UpkeepStatements.deleteOldest}. */
  deleteDelivered(queue: string, keep: number, time: number | null): Query {
    const expired = `updated_at <= ${now('$2')} - $3::float8 * interval '1 ms'`;
    return [
      this.deleteOldest(`queue = $1::text AND status = 'delivered' AND ${expired}`, 'updated_at'),
      [queue, time, keep],
    ];
  }

  /** Deletes dead deliveries that were recorded some milliseconds ago; see {@link UpkeepStatements.deleteOldest}. */
  deleteDead(queue: string, keep: number, time: number | null): Query {
    const expired = `created_at <= ${now('$2')} - $3::float8 * interval '1 ms'`;
    return [
      this.deleteOldest(
        `queue = $1::text AND status = 'dead' AND NOT holds_key AND ${expired}`,
        'created_at, id',
      ),
      [queue, time, keep],
    ];
  }

  /**
   * Looks at a page of the rows of a table, and deletes those that were not used for long.
   *
   * @param columns - its key in the queue
   * @param condition - of a row `one`, besides
   */
  private deletingUnused(table: string, columns: readonly string[], condition = ''): string {
    const of = (row: string): string => columns.map((column) => `${row}.${column}`).join(', ');
    const after = columns.map((_, index) => `$${index + 3}::text`).join(', ');
    return `WITH page AS MATERIALIZED (
  SELECT ${of('one')} FROM ${table} AS one
  WHERE queue = $1::text AND (${of('one')}) > (${after}) ORDER BY ${of('one')} LIMIT ${DELETED_AT_ONCE}
), unused AS MATERIALIZED (
  SELECT unused.place FROM page, LATERAL (
    SELECT one.ctid AS place FROM ${table} AS one WHERE queue = $1::text AND (${of('one')}) = (${of('page')})
      AND used_at <= ${now('$2')} - ${KEPT_UNUSED}::float8 * interval '1 ms' ${condition}
    FOR UPDATE SKIP LOCKED
  ) AS unused
), gone AS (
  DELETE FROM ${table} WHERE ctid = ANY (ARRAY(SELECT place FROM unused))
)
SELECT (SELECT count(*)::int FROM page) AS seen, last.* FROM (SELECT) AS one LEFT JOIN (
  SELECT ${of('page')} FROM page ORDER BY ${columns.map((column) => `${column} DESC`).join(', ')} LIMIT 1
) AS last ON true`;
  }

  /**
   * Deletes a batch with its attempts and returns one row with their number, which is less than {@link DELETED_AT_ONCE} for
   * the last batch. A locked row is being changed, by a statement that locks rows in another order.
   */
  private deleteOldest(condition: string, order: string): string {
    return `WITH old AS MATERIALIZED (
  SELECT seq FROM ${this.schema}.delivery WHERE ${condition} ORDER BY ${order} LIMIT ${DELETED_AT_ONCE} FOR UPDATE SKIP LOCKED
), made AS (
  DELETE FROM ${this.schema}.attempt WHERE delivery_seq = ANY (ARRAY(SELECT seq FROM old))
), gone AS (
  DELETE FROM ${this.schema}.delivery WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING status, queue, created_at, endpoint_id, tenant, receiver
), counted AS (
  ${counting(this.schema, 'gone', -1)}
)
SELECT count(*)::int AS gone FROM gone`;
  }
}
