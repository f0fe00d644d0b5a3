import { type CancelWake, repeat, repeatInBatches } from '../clock/webhook-clock.js';
import { KEPT_UNUSED } from '../queue/queue-options.js';
import { RETENTION_INTERVAL } from '../queue/queue-options.js';
import { COUNT_GRAIN, type DeliveryFilter } from '../queue/webhook-queue.js';
import { deleteInBatches } from './connection.js';
import type { Row } from './database.js';
import { isOutage } from './database-failure.js';
import { counting, IS_WAITING } from './delivery-table.js';
import { conditionsOf } from './delivery-lists.js';
import type { QueueConnection } from './queue-connection.js';
import { now } from './sql-text.js';

/** Milliseconds between two merges of counts. */
const MERGE_INTERVAL = 5_000;
/** Seconds in a {@link COUNT_GRAIN}: deliveries are counted together if they were recorded in the same one. */
const COUNT_SECONDS = COUNT_GRAIN / 1_000;
/** Changes of counts that one statement merges. */
const MERGED_AT_ONCE = 5_000;
/** Milliseconds between two pages in which unused keys, or unused limits, are looked for. */
const UNUSED_INTERVAL = 60_000;
/** Deliveries that one statement deletes. */
export const DELETED_AT_ONCE = 1_000;

/**
 * Deletes what is past its retention, not used any more, or asked to be deleted, and merges counts. Each consumer does so, in small
 * batches; what one misses, the next one makes up for.
 */
export class QueueUpkeep {
  constructor(private readonly connection: QueueConnection) {}

  /**
   * Starts to delete and to merge.
   *
   * @param onFailure - called for each failure that is no outage
   * @returns a function that ends it
   */
  start(onFailure: (error: unknown) => void): CancelWake {
    const { clock, keepDelivered, keepDead, keepPayloads } = this.connection.options;
    let hasEnded = false;
    const reporting = async <T>(work: () => Promise<T>): Promise<T> => {
      try {
        return await work();
      } catch (error) {
        // Claims report an outage.
        if (!isOutage(error) && !hasEnded) onFailure(error);
        throw error;
      }
    };
    const inBatches = (
      keep: number | undefined,
      batch: (keep: number) => Promise<boolean>,
    ): CancelWake[] => {
      if (keep === undefined) return [];
      const work = async (): Promise<boolean> => reporting(async () => batch(keep));
      return [repeatInBatches(clock, RETENTION_INTERVAL, work)];
    };
    let [keysUntil, limitsUntil]: (readonly string[])[] = [['', ''], ['']];
    const deleteUnused = async (): Promise<void> => {
      keysUntil = await this.deleteUnusedKeys(keysUntil!);
      limitsUntil = await this.deleteUnusedLimits(limitsUntil!);
    };
    const timers = [
      ...inBatches(keepDelivered, async (keep) => this.deleteDelivered(keep)),
      ...inBatches(keepDead, async (keep) => this.deleteDead(keep)),
      ...inBatches(keepPayloads, async (keep) => this.dropPayloads(keep)),
      repeat(clock, UNUSED_INTERVAL, async () => reporting(deleteUnused)),
      repeat(clock, MERGE_INTERVAL, async () => reporting(async () => this.mergeCounts())),
    ];
    return () => {
      hasEnded = true;
      for (const cancel of timers) cancel();
    };
  }

  /** Deletes finished deliveries that were recorded before a time. @returns how many */
  async prune(before: number, tenant: string | undefined): Promise<number> {
    const conditions = conditionsOf({ until: before, tenant }, this.connection.name);
    conditions.always(`status <> 'pending'`);
    return this.deleteAll(conditions.text, conditions.values, DELETED_AT_ONCE);
  }

  /**
   * Deletes deliveries in any state, except those that are being attempted: their requests may still be sent.
   *
   * @returns how many
   */
  async erase(filter: DeliveryFilter): Promise<number> {
    const conditions = conditionsOf(filter, this.connection.name);
    conditions.add(this.connection.now, (time) => `leased_until <= ${now(time)}`);
    // Until nothing is left: rows that are being changed are skipped.
    return this.deleteAll(conditions.text, conditions.values, 1);
  }

  /** Deletes a batch of deliveries that were delivered some milliseconds ago. @returns whether there are more */
  async deleteDelivered(keep: number): Promise<boolean> {
    return this.deleteOld(`status = 'delivered' AND updated_at`, 'updated_at', keep);
  }

  /** Deletes a batch of dead deliveries that were recorded some milliseconds ago. @returns whether there are more */
  async deleteDead(keep: number): Promise<boolean> {
    const recorded = `status = 'dead' AND NOT holds_key AND created_at`;
    return this.deleteOld(recorded, 'created_at, id', keep);
  }

  /**
   * Drops the payloads of a batch of deliveries that were delivered some milliseconds ago, unless another process is doing so. It starts
   * again from the oldest one after a clock that was ahead.
   *
   * @returns whether there may be more
   */
  async dropPayloads(keep: number): Promise<boolean> {
    const { schema, name, now: time } = this.connection;
    const until = `${now('$2')} - $3::float8 * interval '1 ms'`;
    const statement = `WITH known AS (
  INSERT INTO ${schema}.delivery_retention (queue) VALUES ($1::text) ON CONFLICT (queue) DO NOTHING
), turn AS MATERIALIZED (
  SELECT * FROM ${schema}.delivery_retention WHERE queue = $1::text FOR NO KEY UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT delivery.* FROM turn, LATERAL (
    SELECT seq, updated_at FROM ${schema}.delivery AS delivery WHERE queue = $1::text AND status = 'delivered'
      AND updated_at > CASE WHEN payloads_until <= ${until} THEN payloads_until ELSE '-infinity' END AND updated_at <= ${until}
    ORDER BY updated_at FETCH FIRST ${DELETED_AT_ONCE} ROWS WITH TIES
  ) AS delivery
), dropped AS (
  UPDATE ${schema}.delivery SET payload = NULL, payload_dropped = true
  WHERE seq = ANY (ARRAY(SELECT seq FROM old)) AND payload IS NOT NULL
), moved AS (
  UPDATE ${schema}.delivery_retention SET payloads_until = (SELECT max(updated_at) FROM old)
  WHERE queue = $1::text AND EXISTS (SELECT FROM old)
)
SELECT count(*)::int AS seen FROM old`;
    const [row] = await this.connection.queryInIndexOrder(statement, [name, time, keep]);
    return Number(row!['seen']) >= DELETED_AT_ONCE;
  }

  /**
   * Adds a batch of changes to the counts. Rows are counted in the order of their keys, so that several processes do not deadlock.
   *
   * @returns milliseconds until the next batch
   */
  async mergeCounts(): Promise<number> {
    const { schema, name } = this.connection;
    const statement = `WITH merged AS (
  DELETE FROM ${schema}.delivery_change WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ${schema}.delivery_change WHERE queue = $1::text LIMIT ${MERGED_AT_ONCE} FOR UPDATE SKIP LOCKED))
  RETURNING *
), counted AS (
  INSERT INTO ${schema}.delivery_count AS total (queue, at, endpoint_id, tenant, receiver, delivered, dead)
  SELECT queue, to_timestamp(floor(date_part('epoch', created_at) / ${COUNT_SECONDS}) * ${COUNT_SECONDS}), coalesce(endpoint_id, ''), coalesce(tenant, ''), coalesce(receiver, ''),
    sum(delivered), sum(dead)
  FROM merged GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
  ON CONFLICT (queue, at, endpoint_id, tenant, receiver)
    DO UPDATE SET delivered = total.delivered + excluded.delivered, dead = total.dead + excluded.dead
  RETURNING total.*
)
SELECT (SELECT count(*)::int FROM merged) AS merged,
  (SELECT json_agg(counted)::text FROM counted WHERE delivered = 0 AND dead = 0) AS emptied`;
    const [row] = await this.connection.query(statement, [name]);
    if (row!['emptied'] !== null) await this.deleteEmptyCounts(row!['emptied']);
    return Number(row!['merged']) < MERGED_AT_ONCE ? MERGE_INTERVAL : 0;
  }

  /**
   * Deletes those keys of a page that have not been used for {@link KEPT_UNUSED}.
   *
   * @param after - lane and ordering key: the last one of the page before, or two empty strings
   * @returns the last one of this page; two empty strings for the last page
   */
  async deleteUnusedKeys(after: readonly string[]): Promise<readonly string[]> {
    return this.deleteUnused('delivery_key', ['lane', 'ordering_key'], after);
  }

  /**
   * As {@link deleteUnusedKeys}, for the limits of lanes without pending deliveries, by lane only. A transaction that records one
   * meanwhile may still see the limits: `DeliveryLimitTable.findLanes` finds its lane.
   */
  async deleteUnusedLimits(after: readonly string[]): Promise<readonly string[]> {
    const delivery = `${this.connection.schema}.delivery`;
    return this.deleteUnused(
      'delivery_limit',
      ['lane'],
      after,
      `AND NOT EXISTS (SELECT FROM ${delivery} AS delivery WHERE queue = $1::text AND delivery.lane = one.lane AND ${IS_WAITING})
      AND NOT EXISTS (SELECT FROM ${delivery} AS delivery WHERE queue = $1::text AND delivery.lane = one.lane AND holds_key)`,
    );
  }

  /** @param condition - of a row `one`, besides */
  private async deleteUnused(
    tableName: string,
    columns: readonly string[],
    after: readonly string[],
    condition = '',
  ): Promise<readonly string[]> {
    const { schema, name, now: time } = this.connection;
    const table = `${schema}.${tableName}`;
    const of = (row: string): string => columns.map((column) => `${row}.${column}`).join(', ');
    const start = columns.map((_, index) => `$${index + 3}::text`).join(', ');
    const statement = `WITH page AS MATERIALIZED (
  SELECT ${of('one')} FROM ${table} AS one
  WHERE queue = $1::text AND (${of('one')}) > (${start}) ORDER BY ${of('one')} LIMIT ${DELETED_AT_ONCE}
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
    const [row] = await this.connection.queryInIndexOrder(statement, [name, time, ...after]);
    const isLast = Number(row!['seen']) < DELETED_AT_ONCE;
    return columns.map((column) => (isLast ? '' : (row![column] as string)));
  }

  /** @param expires - a condition that ends with the time from which a delivery is kept for `keep` milliseconds */
  private async deleteOld(expires: string, order: string, keep: number): Promise<boolean> {
    const condition = `queue = $1::text AND ${expires} <= ${now('$2')} - $3::float8 * interval '1 ms'`;
    const { name, now: time } = this.connection;
    const [row] = await this.deleteBatch(condition, order, [name, time, keep]);
    return Number(row!['gone']) >= DELETED_AT_ONCE;
  }

  /** @param least - deleted rows of a batch after which another one follows */
  private async deleteAll(
    condition: string,
    values: readonly unknown[],
    least: number,
  ): Promise<number> {
    const batch = async () => this.deleteBatch(condition, 'created_at, id', values);
    return deleteInBatches(least, batch);
  }

  /**
   * Deletes a batch with its attempts, and returns one row with their number. A locked row is being changed, by a statement that locks
   * rows in another order.
   */
  private async deleteBatch(
    condition: string,
    order: string,
    values: readonly unknown[],
  ): Promise<readonly Row[]> {
    const { schema } = this.connection;
    const statement = `WITH old AS MATERIALIZED (
  SELECT seq FROM ${schema}.delivery WHERE ${condition} ORDER BY ${order} LIMIT ${DELETED_AT_ONCE} FOR UPDATE SKIP LOCKED
), made AS (
  DELETE FROM ${schema}.attempt WHERE delivery_seq = ANY (ARRAY(SELECT seq FROM old))
), gone AS (
  DELETE FROM ${schema}.delivery WHERE seq = ANY (ARRAY(SELECT seq FROM old)) RETURNING status, queue, created_at, endpoint_id, tenant, receiver
), counted AS (
  ${counting(schema, 'gone', -1)}
)
SELECT count(*)::int AS gone FROM gone`;
    return this.connection.queryInIndexOrder(statement, values);
  }

  /** A locked row is being changed by another process, which finds it empty too. @param rows - of `delivery_count`, as JSON */
  private async deleteEmptyCounts(rows: unknown): Promise<void> {
    const { schema } = this.connection;
    const statement = `DELETE FROM ${schema}.delivery_count WHERE ctid = ANY (ARRAY(
  SELECT total.ctid FROM json_populate_recordset(NULL::${schema}.delivery_count, $1::text::json) AS empty
  JOIN ${schema}.delivery_count AS total USING (queue, at, endpoint_id, tenant, receiver)
  WHERE total.delivered = 0 AND total.dead = 0 FOR UPDATE OF total SKIP LOCKED))`;
    await this.connection.query(statement, [rows]);
  }
}
