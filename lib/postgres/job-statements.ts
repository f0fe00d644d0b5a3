import type { DeliveryProgress } from '../queue/delivery-progress.js';
import type { QueueCounts } from '../queue/webhook-queue.js';
import type { Db } from 'pg-boss';
import { notificationChannel } from './job-notifications.js';
import { sqlLiterals, timeOf } from './sql-text.js';
import { rowsOf } from './transactions/transaction-adapters.js';
import { jobId, priorityAt, type JobData, type JobOutput, type JobState } from './job-record.js';

/** A job that this process has claimed. */
export interface ClaimedJob {
  readonly id: string;
  readonly data: JobData;
  /** The fencing token: how often the job was claimed before. A worker whose lease expired has an older one. */
  readonly claim: number;
}

/** The free slots of a process. */
export interface ClaimRequest {
  /** Epoch milliseconds. */
  readonly now: number;
  /** Free slots in total. */
  readonly limit: number;
  /** Epoch milliseconds until which the next due job is looked for if none is due now. */
  readonly lookAhead: number;
  /** Free slots of every other lane. */
  readonly perLane: number;
  /** Free slots by lane. */
  readonly lanes: Readonly<Record<string, number>>;
  /** Claims jobs of this lane only. */
  readonly lane?: string | undefined;
  /** Claims only jobs that became due at this time or later, in epoch milliseconds. */
  readonly dueSince?: number | undefined;
}

/** The answer to a {@link ClaimRequest}. */
export interface ClaimResult {
  readonly jobs: readonly ClaimedJob[];
  /** If no job was claimed: epoch milliseconds of the first one that becomes due until `lookAhead`. */
  readonly nextDue?: number | undefined;
}

/** The outcome of a claimed job, to be written. */
export interface JobOutcome {
  readonly id: string;
  /** See {@link ClaimedJob.claim}. */
  readonly claim: number;
  readonly state: 'completed' | 'failed' | 'retry';
  readonly change?: Partial<DeliveryProgress>;
  readonly output?: JobOutput;
}

/**
 * Makes PostgreSQL read the index that matches `ORDER BY`, whatever it knows of the table. Without current statistics (after
 * a burst, before the first ANALYZE, on an engine without autovacuum) it expects a few rows, and collects and sorts
 * the whole backlog for one claim. Both settings end with their transaction, which is the query they precede.
 */
const IN_INDEX_ORDER = 'SET LOCAL enable_sort = off;\nSET LOCAL jit = off;\n';

/**
 * A group of calls must not wait for the transaction of one that records the same delivery; the setting ends with the
 * statement it precedes.
 */
const WITHOUT_WAITING = "SET LOCAL lock_timeout = '1s';\n";

/**
 * Statements over pg-boss's job table, for what its API cannot do: claim in the order of due times (its own fetch
 * picks the jobs of a group by id), write the outcomes of many jobs in one statement, find and remove jobs through
 * an index. Columns and states are those of pg-boss 12.
 *
 * No statement depends on statistics of the table: each reads the rows it needs through an index.
 *
 * pg-boss leaves `singleton_on` and `singleton_key` empty in a queue without singletons, and has an index over them. A finished
 * job has the time of its removal there, and its id to make the pair unique; a dead one is never removed (`infinity`).
 *
 * Every parameter is a string or a number, so that each driver sends it alike.
 */
export class JobStatements {
  private readonly table: string;

  /** @param name - of the queue in pg-boss */
  constructor(
    private readonly schema: string,
    private readonly name: string,
  ) {
    this.table = `${schema}.job`;
  }

  /**
   * Wraps a database for an insert of pg-boss, or another statement that returns ids.
   *
   * @param change - `notifies`: wakes the processes that wait for jobs, at the commit. `waits`: unless set, the statement fails with
   *   SQLSTATE 55P03 if another transaction records the same job and has not ended.
   */
  wrap(db: Db, change: { readonly notifies: boolean; readonly waits: boolean }): Db {
    return {
      executeSql: async (text, values) => {
        const statement = change.notifies ? this.notifying(text) : text;
        if (change.waits) return db.executeSql(statement, values);
        const all = WITHOUT_WAITING + sqlLiterals(statement, values);
        return { rows: rowsOf(await db.executeSql(all)) };
      },
    };
  }

  private notifying(statement: string): string {
    const notify = `pg_notify('${notificationChannel(this.schema)}', '${this.name}')`;
    return `WITH changed AS (${statement}), notified AS MATERIALIZED (SELECT ${notify})
      SELECT id FROM changed WHERE (SELECT count(*) FROM notified) = 1`;
  }

  /** Claims due jobs, the earliest first, up to the free slots of each lane. */
  async claim(db: Db, request: ClaimRequest): Promise<ClaimResult> {
    const { now, limit, lookAhead, perLane, lanes, lane, dueSince } = request;
    const values = [
      this.name,
      priorityAt(now),
      now / 1_000,
      JSON.stringify(lanes),
      perLane,
      limit,
      priorityAt(lookAhead),
    ];
    const conditions = [
      lane !== undefined && `AND group_id = $${values.push(lane)}`,
      dueSince !== undefined && `AND priority <= $${values.push(priorityAt(dueSince))}::int`,
    ].filter((condition) => condition !== false);
    const rows = await this.inIndexOrder(
      db,
      `WITH due AS MATERIALIZED (
        SELECT id, group_id, row_number() OVER () AS place FROM (
          SELECT id, group_id FROM ${this.table}
          WHERE name = $1 AND state < 'active' AND NOT blocked
            AND priority >= $2::int AND ${isDue('$3')}
            AND coalesce(($4::text::jsonb ->> group_id)::int, $5::int) > 0
            ${conditions.join(' ')}
          ORDER BY priority DESC, created_on, start_after
          LIMIT $6::int
          FOR UPDATE SKIP LOCKED
        ) candidates
      ), ranked AS (
        SELECT id, coalesce(($4::text::jsonb ->> group_id)::int, $5::int) AS slots,
          row_number() OVER (PARTITION BY group_id ORDER BY place) AS rank
        FROM due
      ), claimed AS (
        UPDATE ${this.table} SET
          state = 'active', started_on = now(), heartbeat_on = now(),
          retry_count = CASE WHEN started_on IS NULL THEN retry_count ELSE retry_count + 1 END
        WHERE name = $1 AND id = ANY (ARRAY(SELECT id FROM ranked WHERE rank <= slots))
        RETURNING id, data, retry_count AS claim,
          array_position(ARRAY(SELECT id FROM due ORDER BY place), id) AS place
      )
      SELECT id, data, claim, place, NULL::float8 AS due FROM claimed
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, (
        SELECT floor(extract(epoch FROM min(start_after)) * 1000)::float8 FROM ${this.table}
        WHERE name = $1 AND state < 'active' AND NOT blocked
          AND priority BETWEEN $7::int AND $2::int AND NOT ${isDue('$3')}
      ) WHERE NOT EXISTS (SELECT FROM claimed)`,
      values,
    );
    const claimed = rows as unknown as (ClaimedJob & { place: number; due: number | null })[];
    if (claimed[0]?.id === null) return { jobs: [], nextDue: claimed[0].due ?? undefined };
    return { jobs: claimed.sort((a, b) => a.place - b.place) };
  }

  /** @returns those of the lanes that have a due job */
  async findDueLanes(db: Db, lanes: readonly string[], now: number): Promise<string[]> {
    const rows = await this.inIndexOrder(
      db,
      `SELECT lane FROM jsonb_array_elements_text($2::text::jsonb) AS lane, LATERAL (
        SELECT FROM ${this.table}
        WHERE name = $1 AND group_id = lane AND state < 'active' AND NOT blocked
          AND priority >= $3::int AND ${isDue('$4')}
        ORDER BY priority DESC, created_on, start_after LIMIT 1
      ) AS due`,
      [this.name, JSON.stringify(lanes), priorityAt(now), now / 1_000],
    );
    return rows.map(({ lane }) => lane as string);
  }

  /**
   * Creates the index that finds the due jobs of one lane behind any number of jobs of others.
   *
   * @param table - the table of pg-boss that holds the jobs of the queue
   */
  async createLaneIndex(db: Db, table: string): Promise<void> {
    const index = `${this.schema}.${table}_lane`;
    const { rows } = await db.executeSql('SELECT to_regclass($1::text) IS NULL AS missing', [
      index,
    ]);
    if ((rows as [{ missing: boolean }])[0].missing)
      await db.executeSql(laneIndex(this.schema, table));
  }

  /** Writes the outcomes of claimed jobs, all in one step; jobs whose claim has expired stay as they are. */
  async writeOutcomes(db: Db, outcomes: readonly JobOutcome[]): Promise<void> {
    const ended = outcomes.map(({ id, change, ...end }) => {
      const dueAt = change?.dueAt;
      const schedule = dueAt === undefined ? {} : { dueAt, priority: priorityAt(dueAt) };
      return [id, { ...end, change, ...schedule }] as const;
    });
    // Looked up by id and not joined: a join may read every job of the queue.
    const own = `$2::text::jsonb -> id::text`;
    await db.executeSql(
      `UPDATE ${this.table} SET
        state = (${own} ->> 'state')::${this.schema}.job_state,
        data = data || coalesce(${own} -> 'change', '{}'),
        output = ${own} -> 'output',
        priority = coalesce((${own} ->> 'priority')::int, priority),
        start_after = coalesce(${timeOf(`(${own} ->> 'dueAt')`)}, start_after),
        completed_on = CASE WHEN ${own} ->> 'state' <> 'retry' THEN now() END,
        deletion_seconds = CASE WHEN ${own} ->> 'state' = 'failed' THEN 0 ELSE deletion_seconds END,
        singleton_on = CASE ${own} ->> 'state'
          WHEN 'completed' THEN (now() + deletion_seconds * interval '1 s') AT TIME ZONE 'UTC'
          WHEN 'failed' THEN 'infinity' END,
        singleton_key = CASE WHEN ${own} ->> 'state' <> 'retry' THEN id::text END,
        heartbeat_on = NULL
      WHERE name = $1 AND id = ANY (ARRAY(SELECT jsonb_object_keys($2::text::jsonb)::uuid))
        AND state = 'active' AND retry_count = (${own} ->> 'claim')::int`,
      [this.name, JSON.stringify(Object.fromEntries(ended))],
    );
  }

  /** @returns the jobs of these deliveries, by job id */
  async find(db: Db, deliveryIds: readonly string[]): Promise<Map<string, JobState>> {
    const { rows } = await db.executeSql(
      `SELECT id, state, data - 'delivery' AS progress, output,
         data -> 'delivery' ->> 'contentDigest' AS "contentDigest"
       FROM ${this.table}
       WHERE name = $1 AND id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::text::jsonb)::uuid))`,
      [this.name, idList(deliveryIds)],
    );
    return new Map((rows as JobState[]).map((job) => [job.id, job]));
  }

  /** Jobs of dead deliveries, the oldest first. */
  async listFailed(db: Db): Promise<{ data: JobData; output: JobOutput | null; diedAt: number }[]> {
    const { rows } = await db.executeSql(
      `SELECT data, output, (extract(epoch FROM completed_on) * 1000)::float8 AS "diedAt"
       FROM ${this.table} WHERE name = $1 AND singleton_on = 'infinity' AND state = 'failed'
       ORDER BY completed_on`,
      [this.name],
    );
    return rows as { data: JobData; output: JobOutput | null; diedAt: number }[];
  }

  async counts(db: Db): Promise<QueueCounts> {
    // Two counts, each of which an index serves; delivered jobs may be many.
    const { rows } = await db.executeSql(
      `SELECT
         (SELECT count(*) FROM ${this.table} WHERE name = $1 AND state < 'completed')::float8 AS pending,
         (SELECT count(*) FROM ${this.table} WHERE name = $1 AND singleton_on = 'infinity' AND state = 'failed')::float8 AS dead`,
      [this.name],
    );
    return (rows as [QueueCounts])[0];
  }

  /**
   * Gives failed jobs a new round, and makes jobs due now that wait for their time.
   *
   * @param keep - seconds to keep them once they are delivered
   * @param notifies - see {@link JobStatements.wrap}
   * @returns the ids of the jobs that were changed
   */
  async redeliver(
    db: Db,
    deliveryIds: readonly string[],
    now: number,
    keep: number,
    notifies: boolean,
  ): Promise<ReadonlySet<string>> {
    const dueNow: Partial<DeliveryProgress> = { dueAt: now };
    const newRound: DeliveryProgress = { attempts: 0, reason: null, dueAt: now, throws: 0 };
    const { rows } = await this.wrap(db, { notifies, waits: true }).executeSql(
      `UPDATE ${this.table} SET
        data = data || CASE WHEN state = 'failed' THEN $3::text::jsonb ELSE $7::text::jsonb END,
        state = CASE WHEN state = 'failed' THEN 'retry' ELSE state END,
        output = NULL, completed_on = NULL, singleton_on = NULL, singleton_key = NULL,
        priority = $4::int, start_after = to_timestamp($5::float8), deletion_seconds = $6::int
      WHERE name = $1
        AND (state = 'failed' OR (state < 'active' AND NOT ${isDue('$5')}))
        AND id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::text::jsonb)::uuid))
      RETURNING id`,
      [
        this.name,
        idList(deliveryIds),
        JSON.stringify(newRound),
        priorityAt(now),
        now / 1_000,
        keep,
        JSON.stringify(dueNow),
      ],
    );
    return new Set((rows as { id: string }[]).map(({ id }) => id));
  }

  /** Makes jobs due again whose process has stopped renewing its lease. */
  async releaseExpired(db: Db): Promise<void> {
    // The condition on group_id, which every job has, is that of the index over active jobs.
    await db.executeSql(
      `UPDATE ${this.table} SET state = 'retry', heartbeat_on = NULL
      WHERE name = $1 AND id = ANY (ARRAY(
        SELECT id FROM ${this.table}
        WHERE name = $1 AND state = 'active' AND group_id IS NOT NULL
          AND heartbeat_on + heartbeat_seconds * interval '1 s' < now()
        FOR UPDATE SKIP LOCKED
      ))`,
      [this.name],
    );
  }

  /**
   * Removes delivered jobs past their retention, the oldest first.
   *
   * @returns how many; fewer than `limit` when none is left
   */
  async removeDelivered(db: Db, limit: number): Promise<number> {
    const rows = await this.inIndexOrder(
      db,
      `DELETE FROM ${this.table}
      WHERE name = $1 AND id = ANY (ARRAY(
        SELECT id FROM ${this.table}
        WHERE name = $1 AND singleton_on <= now() AT TIME ZONE 'UTC' AND state = 'completed'
        ORDER BY singleton_on LIMIT $2::int
        FOR UPDATE SKIP LOCKED
      ))
      RETURNING id`,
      [this.name, limit],
    );
    return rows.length;
  }

  /** Several statements in one query take no parameters: the values are written into it. */
  private async inIndexOrder(
    db: Db,
    statement: string,
    values: readonly (string | number)[],
  ): Promise<Record<string, unknown>[]> {
    return rowsOf(await db.executeSql(IN_INDEX_ORDER + sqlLiterals(statement, values)));
  }
}

/** Whether a job is due. The microseconds of `start_after` only order the jobs that were recorded together. */
function isDue(now: string): string {
  return `start_after < to_timestamp(${now}::float8) + interval '1 ms'`;
}

/**
 * Creates the index of {@link JobStatements.createLaneIndex}, in one statement. IF NOT EXISTS alone fails with a
 * unique_violation while another process creates the index.
 */
export function laneIndex(schema: string, table: string): string {
  return `DO $index$
BEGIN
  CREATE INDEX IF NOT EXISTS ${table}_lane ON ${schema}.${table}
    (name, group_id, priority DESC, created_on, start_after) WHERE state < 'active' AND NOT blocked;
EXCEPTION WHEN unique_violation THEN
  -- Another process has created it.
END
$index$`;
}

function idList(deliveryIds: readonly string[]): string {
  return JSON.stringify([...new Set(deliveryIds)].map(jobId));
}
