import type { DeliveryProgress } from '../queue/delivery-progress.js';
import type { Db } from 'pg-boss';
import { jobId, priorityAt, type JobData, type JobOutput, type JobState } from './job-record.js';

/** A job in this process's hands. */
export interface ClaimedJob {
  readonly id: string;
  readonly data: JobData;
  /** How often it was claimed before: with it, a process whose lease went to another changes nothing. */
  readonly claim: number;
}

/** What a process has room for. */
export interface ClaimRequest {
  readonly now: number;
  readonly limit: number;
  readonly perLane: number;
  /** The slots left to destinations that have something running. */
  readonly lanes: Readonly<Record<string, number>>;
}

/** What becomes of a claimed job. */
export interface Settlement {
  readonly id: string;
  readonly claim: number;
  readonly state: 'completed' | 'failed' | 'retry';
  readonly change?: Partial<DeliveryProgress>;
  readonly output?: JobOutput;
}

/**
 * What is asked of pg-boss's job table directly, since pg-boss has no word for it: to claim in the order of due times (its
 * own fetch picks a group's jobs by their ids), to end many jobs in different ways at an exact time, and to read by
 * state. The columns and states are those of pg-boss 12.
 *
 * Every parameter is a text or a number, so that each driver sends it alike.
 */
export class JobStatements {
  private readonly table: string;

  /** @param name - under which the job table of pg-boss takes the deliveries */
  constructor(
    private readonly schema: string,
    private readonly name: string,
  ) {
    this.table = `${schema}.job`;
  }

  /** Takes due jobs, the one due first first, and of each destination no more than its slots. */
  async claim(db: Db, { now, limit, perLane, lanes }: ClaimRequest): Promise<ClaimedJob[]> {
    // Ties are broken by the place in the table, which follows the order they were recorded in.
    const { rows } = await db.executeSql(
      `WITH due AS MATERIALIZED (
        SELECT id, group_id, row_number() OVER () AS place FROM (
          SELECT id, group_id FROM ${this.table}
          WHERE name = $1 AND state < 'active' AND NOT blocked
            AND priority >= $2::int AND start_after <= to_timestamp($3::float8)
            AND coalesce(($4::text::jsonb ->> group_id)::int, $5::int) > 0
          ORDER BY priority DESC, created_on, ctid
          LIMIT $6::int
          FOR UPDATE SKIP LOCKED
        ) candidates
      ), ranked AS (
        SELECT id, place, coalesce(($4::text::jsonb ->> group_id)::int, $5::int) AS slots,
          row_number() OVER (PARTITION BY group_id ORDER BY place) AS rank
        FROM due
      )
      UPDATE ${this.table} job SET
        state = 'active', started_on = now(), heartbeat_on = now(),
        retry_count = CASE WHEN started_on IS NULL THEN retry_count ELSE retry_count + 1 END
      FROM ranked
      WHERE job.name = $1 AND job.id = ranked.id AND rank <= slots
      RETURNING job.id, job.data, job.retry_count AS claim, place`,
      [this.name, priorityAt(now), now / 1_000, JSON.stringify(lanes), perLane, limit],
    );
    return (rows as (ClaimedJob & { place: number | string })[]).sort(
      (a, b) => Number(a.place) - Number(b.place),
    );
  }

  /** @returns epoch milliseconds of the next job that becomes due in this span, if any does */
  async nextDue(db: Db, after: number, until: number): Promise<number | undefined> {
    const { rows } = await db.executeSql(
      `SELECT (extract(epoch FROM min(start_after)) * 1000)::float8 AS due FROM ${this.table}
       WHERE name = $1 AND state < 'active' AND NOT blocked
         AND priority BETWEEN $2::int AND $3::int
         AND start_after > to_timestamp($4::float8)`,
      [this.name, priorityAt(until), priorityAt(after), after / 1_000],
    );
    const [{ due }] = rows as [{ due: number | null }];
    return due ?? undefined;
  }

  /** Ends claims, all of them in one step; those that went to another process meanwhile are left alone. */
  async settle(db: Db, settlements: readonly Settlement[]): Promise<void> {
    const ends = settlements.map(({ change, ...end }) => ({
      ...end,
      change,
      ...(change?.dueAt !== undefined && {
        at: change.dueAt / 1_000,
        priority: priorityAt(change.dueAt),
      }),
    }));
    await db.executeSql(
      `UPDATE ${this.table} job SET
        state = ended.state::${this.schema}.job_state,
        data = CASE WHEN ended.change IS NULL THEN job.data ELSE job.data || ended.change END,
        output = ended.output,
        priority = coalesce(ended.priority, job.priority),
        start_after = coalesce(to_timestamp(ended.at), job.start_after),
        completed_on = CASE WHEN ended.state = 'retry' THEN NULL ELSE now() END,
        deletion_seconds = CASE WHEN ended.state = 'failed' THEN 0 ELSE job.deletion_seconds END,
        heartbeat_on = NULL
      FROM jsonb_to_recordset($2::text::jsonb) AS ended(
        id uuid, claim int, state text, change jsonb, output jsonb, at float8, priority int
      )
      WHERE job.name = $1 AND job.id = ended.id
        AND job.state = 'active' AND job.retry_count = ended.claim`,
      [this.name, JSON.stringify(ends)],
    );
  }

  /** @returns what there is of these deliveries, by job id */
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

  /** The jobs that were given up, the oldest first. */
  async listFailed(db: Db): Promise<{ data: JobData; output: JobOutput | null; diedAt: number }[]> {
    const { rows } = await db.executeSql(
      `SELECT data, output, (extract(epoch FROM completed_on) * 1000)::float8 AS "diedAt"
       FROM ${this.table} WHERE name = $1 AND state = 'failed' ORDER BY completed_on`,
      [this.name],
    );
    return rows as { data: JobData; output: JobOutput | null; diedAt: number }[];
  }

  /**
   * Gives failed jobs a new round, and makes those due that wait for their time.
   *
   * @param keep - seconds to keep them once they are delivered
   * @returns the job ids of those that were changed
   */
  async redeliver(
    db: Db,
    deliveryIds: readonly string[],
    now: number,
    keep: number,
  ): Promise<ReadonlySet<string>> {
    const dueNow: Partial<DeliveryProgress> = { dueAt: now };
    const newRound: DeliveryProgress = { attempts: 0, reason: null, dueAt: now, throws: 0 };
    const { rows } = await db.executeSql(
      `UPDATE ${this.table} SET
        data = data || CASE WHEN state = 'failed' THEN $3::text::jsonb ELSE $7::text::jsonb END,
        state = CASE WHEN state = 'failed' THEN 'retry' ELSE state END,
        output = NULL, completed_on = NULL,
        priority = $4::int, start_after = to_timestamp($5::float8), deletion_seconds = $6::int
      WHERE name = $1
        AND (state = 'failed' OR (state < 'active' AND start_after > to_timestamp($5::float8)))
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
}

function idList(deliveryIds: readonly string[]): string {
  return JSON.stringify([...new Set(deliveryIds)].map(jobId));
}
