// Publishing by hand with the same promises: an acknowledged event is stored, attempted with bounded concurrency,
// repeated after a failure or a crash (except in memory), and kept with its outcome.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { BY_HAND } from '../send/by-hand.mjs';
import { CONCURRENCY } from './settings.mjs';

const MAX_ATTEMPTS = 10;
const LEASE = '30 seconds';
const POLL = 100;
/** Finished jobs that BullMQ keeps. */
const KEPT = 100_000;

export const OPEN_BY_HAND = {
  async memory({ url, event, client, onDelivered }) {
    const post = await posting(url, event, client);
    const waiting = [];
    let running = 0;
    const work = async () => {
      running++;
      for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
        try {
          await post(job.data);
          onDelivered();
        } catch {
          const again = { ...job, attempts: job.attempts + 1 };
          if (again.attempts < MAX_ATTEMPTS)
            setTimeout(() => add(again), 2 ** again.attempts * 1_000);
        }
      }
      running--;
    };
    const add = (job) => {
      waiting.push(job);
      if (running < CONCURRENCY) void work();
    };
    return {
      publish: async () => add({ id: randomUUID(), data: event.data, attempts: 0 }),
      close: async () => {},
    };
  },

  async postgres({ place: { postgres, name }, url, event, client, onDelivered }) {
    const post = await posting(url, event, client);
    const { default: pg } = await import('pg');
    const pool = new pg.Pool({ connectionString: postgres });
    // `dropJobs` removes the schema with its table.
    await pool.query(`CREATE SCHEMA ${name}`);
    await pool.query(`CREATE TABLE ${name}.outbox (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(), data jsonb NOT NULL, attempts int NOT NULL DEFAULT 0,
      due timestamptz NOT NULL DEFAULT now(), status text, done_at timestamptz)`);
    await pool.query(`CREATE INDEX ON ${name}.outbox (due) WHERE done_at IS NULL`);
    const state = { running: 0, claiming: false, closed: false };
    const attempt = async ({ id, data, attempts }) => {
      try {
        await post(data);
        const done = `UPDATE ${name}.outbox SET status = 'delivered', done_at = now() WHERE id = $1`;
        await pool.query(done, [id]);
        onDelivered();
      } catch {
        const retry = `UPDATE ${name}.outbox SET due = now() + $2 * interval '1 second',
          done_at = CASE WHEN attempts >= ${MAX_ATTEMPTS} THEN now() END WHERE id = $1`;
        await pool.query(retry, [id, 2 ** attempts]);
      }
      state.running--;
      void claim();
    };
    const claim = async () => {
      if (state.claiming || state.closed || state.running >= CONCURRENCY) return;
      state.claiming = true;
      const { rows } = await pool.query(
        `UPDATE ${name}.outbox SET due = now() + interval '${LEASE}', attempts = attempts + 1
          WHERE id IN (SELECT id FROM ${name}.outbox WHERE done_at IS NULL AND due <= now()
            ORDER BY due LIMIT $1 FOR UPDATE SKIP LOCKED)
          RETURNING id, data, attempts`,
        [CONCURRENCY - state.running],
      );
      state.claiming = false;
      state.running += rows.length;
      for (const row of rows) void attempt(row);
      if (rows.length > 0) void claim();
    };
    const poll = setInterval(() => void claim(), POLL);
    return {
      async publish() {
        await pool.query(`INSERT INTO ${name}.outbox (data) VALUES ($1)`, [event.data]);
        void claim();
      },
      async close() {
        clearInterval(poll);
        state.closed = true;
        while (state.claiming || state.running > 0) await sleep(POLL);
        await pool.end();
      },
    };
  },

  async bullmq({ place: { redis, name }, url, event, client, onDelivered }) {
    const post = await posting(url, event, client);
    const { Queue, Worker } = await import('bullmq');
    const connection = { url: redis };
    const jobs = new Queue(name, { connection });
    const worker = new Worker(name, async ({ data }) => post(data), {
      connection: { ...connection, maxRetriesPerRequest: null },
      concurrency: CONCURRENCY,
    });
    worker.on('completed', onDelivered);
    const options = {
      attempts: MAX_ATTEMPTS,
      backoff: { type: 'exponential', delay: 1_000 },
      removeOnComplete: KEPT,
    };
    return {
      publish: async () => jobs.add('order.created', event.data, options),
      async close() {
        await worker.close();
        await jobs.close();
      },
    };
  },
};

/** Signs with jose and sends; rejects unless the answer is 204. */
async function posting(url, { method }, client) {
  const post = await BY_HAND[client](url, { method });
  return async (data) => {
    const status = await post(data);
    if (status !== 204) throw new Error(`The receiver answered ${status}.`);
  };
}
