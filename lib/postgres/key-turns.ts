import { type CancelWake, repeat, restAfter } from '../clock/webhook-clock.js';
import type { Row } from './database.js';
import type { QueueConnection } from './queue-connection.js';
import { HAS_WRITTEN, millisecondsOf, now, settingLockTimeout } from './sql-text.js';

/** What depends on ordering keys in the statement that records deliveries. */
export interface KeyedParts {
  /** Common table expressions that number the rows of `given`. */
  readonly numbered: string;
  /** The rows to insert. */
  readonly source: string;
  readonly number: string;
  readonly holdsKey: string;
  readonly held: string;
  readonly onConflict: string;
}

/** The number before the first one of a key: the time, so that numbers never fall, even if the last one was deleted. */
const FIRST_NUMBER = `(${millisecondsOf('now()')})::bigint`;

/**
 * `$1` queue, `$2` JSON list of rows of `deliveryRows`, `$3` `lock_timeout` or `null`, `$4` whether it runs in a
 * transaction of the caller: then it does nothing unless {@link HAS_WRITTEN}. Locks the keys of the rows until the commit, and
 * returns a row if there are any. The deliveries are recorded by a later statement of the same transaction, which sees
 * everything that was recorded while this one waited.
 */
export function lockingKeys(schema: string): string {
  return `WITH given AS MATERIALIZED (
  SELECT DISTINCT lane, ordering_key FROM json_to_recordset($2::text::json)
    AS given(lane text, ordering_key text, sequence bigint)
  WHERE ordering_key IS NOT NULL AND sequence IS NULL AND (NOT $4::boolean OR ${HAS_WRITTEN})
), setting AS MATERIALIZED (
  SELECT ${settingLockTimeout('$3')} WHERE NOT $4::boolean OR ${HAS_WRITTEN}
), locked AS (
  INSERT INTO ${schema}.delivery_key AS key (queue, lane, ordering_key, sequence)
  SELECT $1::text, lane, ordering_key, ${millisecondsOf('clock_timestamp()')} FROM given, setting ORDER BY lane, ordering_key
  ON CONFLICT (queue, lane, ordering_key) DO UPDATE SET sequence = key.sequence RETURNING lane
)
SELECT set_config('lock_timeout', before, true) AS lock_timeout FROM setting WHERE (SELECT count(*) FROM locked) > 0`;
}

/**
 * Numbers the deliveries of each key, and writes the last number. The rows of keys are locked in their order until the commit.
 *
 * A statement does not see what was committed after its start, while it waited for a key. Then the key has another number than it
 * saw: such deliveries are `held`, since one that it does not see may hold their key.
 *
 * Each row has its matches: `FULL` keeps out nested loops, which the planner would choose since it expects one row.
 */
export function numbering(schema: string): Omit<KeyedParts, 'onConflict'> {
  return {
    numbered: `, fresh AS MATERIALIZED (
  SELECT * FROM given WHERE NOT EXISTS (
    SELECT FROM ${schema}.delivery AS delivery WHERE queue = $1::text AND delivery.id = given.id OFFSET 0)
), ranked AS MATERIALIZED (
  SELECT place, lane, ordering_key, row_number() OVER (PARTITION BY lane, ordering_key ORDER BY place) AS rank
  FROM fresh WHERE ordering_key IS NOT NULL AND sequence IS NULL
), keys AS MATERIALIZED (
  SELECT lane, ordering_key, ${FIRST_NUMBER} AS start, max(rank) AS count, (
    SELECT sequence FROM ${schema}.delivery_key AS key
    WHERE queue = $1::text AND key.lane = ranked.lane AND key.ordering_key = ranked.ordering_key
  ) AS seen, EXISTS (
    SELECT FROM ${schema}.delivery AS earlier WHERE queue = $1::text AND earlier.lane = ranked.lane
      AND earlier.ordering_key = ranked.ordering_key AND holds_key OFFSET 0
  ) AS is_held
  FROM ranked GROUP BY lane, ordering_key
), counted AS (
  INSERT INTO ${schema}.delivery_key AS key (queue, lane, ordering_key, sequence, used_at)
  SELECT $1::text, lane, ordering_key, start + count, ${now('$3')} FROM keys, moment ORDER BY lane, ordering_key
  ON CONFLICT (queue, lane, ordering_key)
    DO UPDATE SET sequence = key.sequence + excluded.sequence - ${FIRST_NUMBER}, used_at = excluded.used_at
  RETURNING lane, ordering_key, sequence
), numbered AS MATERIALIZED (
  SELECT place, counted.sequence - count + rank AS number,
    is_held OR rank > 1 OR counted.sequence - count <> coalesce(seen, start) AS held
  FROM ranked FULL JOIN keys USING (lane, ordering_key) FULL JOIN counted USING (lane, ordering_key)
)`,
    source: 'fresh AS given LEFT JOIN numbered USING (place)',
    number: 'coalesce(number, sequence)',
    holdsKey: 'number IS NOT NULL',
    held: 'coalesce(held, false)',
  };
}

/** Milliseconds between two searches for deliveries that wait for their ordering key although no other one holds it. */
const RELEASE_INTERVAL = 5_000;
/** Such a search takes at most 1 part in this many of the time. */
const RELEASE_SHARE = 50;

/**
 * Lets the next delivery of an ordering key start when the turn of the one before it has ended: `holds_key` marks the deliveries that
 * others wait for.
 */
export class KeyTurns {
  private readonly table: string;

  constructor(private readonly connection: QueueConnection) {
    this.table = `${connection.schema}.delivery`;
  }

  /**
   * Lets the deliveries start that follow these, whose turn has ended. It runs after the commit of its cause, so that it sees what was
   * recorded until then.
   *
   * @returns whether there are any
   */
  async releaseNext(seqs: readonly string[]): Promise<boolean> {
    const { connection, table } = this;
    const keys = `SELECT DISTINCT lane, ordering_key FROM ${table}
    WHERE queue = $1::text AND ordering_key IS NOT NULL
      AND seq = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)::bigint))`;
    const values = [connection.name, JSON.stringify(seqs), connection.now];
    return (await connection.query(this.releasing(keys, '$3'), values)).length > 0;
  }

  /**
   * Makes up for a process that died before {@link releaseNext}, and for transactions that were open meanwhile.
   *
   * @returns whether any delivery can start
   */
  async releaseAll(): Promise<boolean> {
    const { connection, table } = this;
    const keys = `SELECT DISTINCT lane, ordering_key FROM ${table}
    WHERE queue = $1::text AND holds_key`;
    const values = [connection.name, connection.now];
    return (await connection.query(this.releasing(keys, '$2'), values)).length > 0;
  }

  /** Repeats {@link releaseAll}. @param onReleased - called when deliveries can start */
  search(onReleased: () => void): CancelWake {
    const { clock } = this.connection;
    return repeat(clock, RELEASE_INTERVAL, async () => {
      const start = clock.now();
      if (await this.releaseAll()) onReleased();
      return Math.max(RELEASE_INTERVAL, restAfter(clock.now() - start, RELEASE_SHARE));
    });
  }

  /** @returns `id` and `seq` of those that blocked their key */
  async skip(ids: readonly string[]): Promise<readonly Row[]> {
    const statement = `UPDATE ${this.table} SET holds_key = false
WHERE queue = $1::text AND id = ANY (ARRAY(SELECT json_array_elements_text($2::text::json)))
  AND CASE status WHEN 'dead' THEN holds_key END
RETURNING id, seq::text AS seq`;
    return this.connection.query(statement, [this.connection.name, idList(ids)]);
  }

  /**
   * Releases the first delivery of each key, if it is held. It becomes due now, unless it is due later: a claim may look only at
   * deliveries that became due after the last one.
   *
   * @param keys - selects lanes and keys; `$1` is the queue
   */
  private releasing(keys: string, time: string): string {
    return `UPDATE ${this.table} SET held = false, due_at = greatest(due_at, ${now(time)}) WHERE held AND seq = ANY (ARRAY(
  SELECT first.seq FROM (${keys}) AS key, LATERAL (
    SELECT seq, held FROM ${this.table} AS delivery WHERE queue = $1::text AND delivery.lane = key.lane
      AND delivery.ordering_key = key.ordering_key AND holds_key ORDER BY sequence LIMIT 1
  ) AS first WHERE first.held
)) RETURNING seq`;
  }
}

/** As JSON. No string in PostgreSQL contains NUL, so no delivery has such an id. */
export function idList(ids: readonly string[]): string {
  return JSON.stringify(ids.filter((id) => !id.includes('\0')));
}
