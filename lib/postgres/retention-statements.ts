import { KEPT_UNUSED } from '../queue/key-order.js';
import type { DeliveryFilter } from '../queue/webhook-queue.js';
import { conditionsOf, counting, IS_WAITING, type Query } from './delivery-statements.js';
import { now } from './sql-text.js';

/** Deliveries that one statement deletes. */
export const DELETED_AT_ONCE = 1_000;

/** The statements that delete what is past its retention, or was asked to be deleted. Each works in batches. */
export class RetentionStatements {
  /**
   * `$1` queue, `$2` now, `$3` milliseconds. Drops the payloads of a batch of deliveries that were delivered so long ago, unless another
   * process is doing so. Returns one row with the number of deliveries that it looked at, which is less than {@link DELETED_AT_ONCE}
   * for the last batch.
   */
  readonly dropPayloads: string;

  /**
   * `$1` queue, `$2` now, `$3` lane and `$4` ordering key: the last one of the page before, or two empty strings. Deletes those keys of a
   * page that have not been used for {@link KEPT_UNUSED}. Returns one row with the number of keys that it looked at, which is less than
   * {@link DELETED_AT_ONCE} for the last page, and the last one of them.
   */
  readonly deleteUnusedKeys: string;

  /**
   * As {@link deleteUnusedKeys}, for the limits of lanes without pending deliveries, without `$4`. A transaction that records one
   * meanwhile may still see the limits: `LimitStatements.findLanes` finds its lane.
   */
  readonly deleteUnusedLimits: string;

  /** `$1` queue. Deletes the counts of what was deleted. */
  readonly deleteEmptyCounts: string;

  private readonly delivery: string;
  private readonly attempt: string;
  private readonly change: string;

  constructor(schema: string) {
    this.delivery = `${schema}.delivery`;
    this.attempt = `${schema}.attempt`;
    this.change = `${schema}.delivery_change`;
    const retention = `${schema}.delivery_retention`;
    this.dropPayloads = `WITH known AS (
  INSERT INTO ${retention} (queue) VALUES ($1::text) ON CONFLICT (queue) DO NOTHING
), turn AS MATERIALIZED (
  SELECT * FROM ${retention} WHERE queue = $1::text FOR NO KEY UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT delivery.* FROM turn, LATERAL (
    SELECT seq, updated_at FROM ${this.delivery} AS delivery WHERE queue = $1::text AND status = 'delivered'
      AND updated_at > payloads_until AND updated_at <= ${now('$2')} - $3::float8 * interval '1 ms'
    ORDER BY updated_at FETCH FIRST ${DELETED_AT_ONCE} ROWS WITH TIES
  ) AS delivery
), dropped AS (
  UPDATE ${this.delivery} SET payload = NULL, payload_dropped = true
  WHERE seq = ANY (ARRAY(SELECT seq FROM old)) AND payload IS NOT NULL
), moved AS (
  UPDATE ${retention} SET payloads_until = (SELECT max(updated_at) FROM old)
  WHERE queue = $1::text AND EXISTS (SELECT FROM old)
)
SELECT count(*)::int AS seen FROM old`;
    this.deleteUnusedKeys = this.deletingUnused(`${schema}.delivery_key`, ['lane', 'ordering_key']);
    this.deleteUnusedLimits = this.deletingUnused(
      `${schema}.delivery_limit`,
      ['lane'],
      `AND NOT EXISTS (SELECT FROM ${this.delivery} AS delivery WHERE queue = $1::text AND delivery.lane = one.lane AND ${IS_WAITING})
      AND NOT EXISTS (SELECT FROM ${this.delivery} AS delivery WHERE queue = $1::text AND delivery.lane = one.lane AND holds_key)`,
    );
    this.deleteEmptyCounts = `DELETE FROM ${schema}.delivery_count WHERE queue = $1::text AND delivered = 0 AND dead = 0`;
  }

  /** Deletes finished deliveries that were recorded before a time; see {@link RetentionStatements.deleteOldest}. */
  prune(queue: string, before: number, tenant: string | undefined): Query {
    const values: unknown[] = [queue];
    const conditions = conditionsOf({ until: before, tenant }, values);
    return [
      this.deleteOldest([...conditions, `status <> 'pending'`].join(' AND '), 'created_at, id'),
      values,
    ];
  }

  /** Deletes deliveries in any state; see {@link RetentionStatements.deleteOldest}. */
  erase(queue: string, filter: DeliveryFilter): Query {
    const values: unknown[] = [queue];
    const condition = conditionsOf(filter, values).join(' AND ');
    return [this.deleteOldest(condition, 'created_at, id'), values];
  }

  /** Deletes deliveries that were delivered some milliseconds ago; see {@link RetentionStatements.deleteOldest}. */
  deleteDelivered(queue: string, keep: number, time: number | null): Query {
    const expired = `updated_at <= ${now('$2')} - $3::float8 * interval '1 ms'`;
    return [
      this.deleteOldest(`queue = $1::text AND status = 'delivered' AND ${expired}`, 'updated_at'),
      [queue, time, keep],
    ];
  }

  /** Deletes dead deliveries that were recorded some milliseconds ago; see {@link RetentionStatements.deleteOldest}. */
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
  SELECT seq FROM ${this.delivery} WHERE ${condition} ORDER BY ${order} LIMIT ${DELETED_AT_ONCE} FOR UPDATE SKIP LOCKED
), made AS (
  DELETE FROM ${this.attempt} WHERE delivery_seq = ANY (ARRAY(SELECT seq FROM old))
), gone AS (
  DELETE FROM ${this.delivery} WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING status, queue, created_at, endpoint_id, tenant, receiver
), counted AS (
  ${counting(this.change, 'gone', -1)}
)
SELECT count(*)::int AS gone FROM gone`;
  }
}
