import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { ENGINES, openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';
import { dueDelivery, fill, median } from '../deliveries.mjs';
import { report } from '../harness.mjs';

const NEEDS = { postgres: 'PostgreSQL', bullmq: 'Redis' };
/** Numbers of concurrent callers, each waiting for its acknowledgement. */
const CALLERS = [20, 200];
const CONCURRENCY = 50;
/** The queue and the engine alone take turns this often in a round. */
const TURNS = 4;

const ROUNDS = { full: 5, quick: 1 };
const RECORDED = 'deliveries that a queue records a second, one call each';
const BY_HAND = 'times as many recorded as by the engine alone, one call each, 20 callers';
const PROCESSED = 'deliveries that a queue hands to a handler which does nothing, a second';

/** Ordering keys, and the deliveries of a turn. */
const KEYS = 10_000;
const KEYED_TURN = { full: 2_000, quick: 500 };
/** A turn in memory would be too short to measure. */
const MEMORY_TURNS = 10;
const KEYED_ROUNDS = { full: 9, quick: 3 };

/** Throughput of the queues in wall time, since they mostly wait for their databases. */
export async function run({ quick = false, only = '' } = {}) {
  return [...(await throughput(quick, only)), ...(await ordering(quick ? 'quick' : 'full', only))];
}

async function throughput(quick, only) {
  if (![RECORDED, BY_HAND, PROCESSED].some((title) => title.includes(only))) return [];
  const count = quick ? 500 : 4_000;
  console.log(`\nqueues: ${count} deliveries, ${CONCURRENCY} attempts at once`);
  const engines = await present();
  const rows = { [RECORDED]: {}, [BY_HAND]: {}, [PROCESSED]: {} };
  const note = (title, name, value) => (rows[title][name] ??= []).push(value);
  for (let round = 0; round < ROUNDS[quick ? 'quick' : 'full']; round++) {
    for (const engine of round % 2 === 0 ? engines : engines.toReversed()) {
      await measureRecording(engine, count, note);
      await measureProcessing(engine, count, note);
    }
  }
  return Object.entries(rows).map(([title, taken]) => print(title, taken));
}

/** The engines whose server is available. */
async function present() {
  const engines = [];
  for (const engine of ENGINES) {
    const service = NEEDS[engine];
    if (service === undefined || (await answers(SERVICE_URLS[service]))) engines.push(engine);
    else console.log(`  skipped ${engine}: ${service} does not answer at ${SERVICE_URLS[service]}`);
  }
  return engines;
}

function print(title, taken) {
  const rows = Object.entries(taken).map(([name, values]) => {
    const all = values.toSorted((a, b) => a - b);
    return { name, value: median(values), low: all[0], high: all.at(-1) };
  });
  const digits = title === BY_HAND ? 2 : 0;
  console.log(`\n${title}`);
  for (const { name, value, low, high } of rows) {
    const range = `(${low.toFixed(digits)}–${high.toFixed(digits)})`;
    console.log(`  ${name.padEnd(40)} ${value.toFixed(digits).padStart(8)}  ${range}`);
  }
  return { title, unit: title === BY_HAND ? 'times' : 'deliveries a second', rows };
}

async function withQueue(engine, act) {
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
  const place = engine === 'memory' ? { maxPending: 1e6 } : { postgres, redis, name, directory };
  const limits = { concurrency: CONCURRENCY, concurrencyPerDestination: CONCURRENCY };
  const queue = await openQueue(engine, { ...place, ...limits });
  try {
    await act(queue, name);
  } finally {
    await queue.stop(Date.now() + 5_000);
    await dropJobs(engine, { postgres, redis, name });
    await rm(directory, { recursive: true, force: true });
  }
}

async function measureRecording(engine, count, note) {
  await withQueue(engine, async (queue, name) => {
    const byHand = await (ALONE[engine] ?? (() => undefined))(name);
    let number = 0;
    const record = async () => queue.enqueue([dueDelivery(`delivery-${number++}`)]);
    // The first call opens connections and creates tables.
    await record();
    const [ours, alone] = [[], []];
    for (let turn = 0; turn < TURNS; turn++) {
      const isFirst = turn % 2 === 0;
      if (isFirst) ours.push(await rate(count / TURNS, CALLERS[0], record));
      if (byHand) alone.push(await rate(count / TURNS, CALLERS[0], byHand.record));
      if (!isFirst) ours.push(await rate(count / TURNS, CALLERS[0], record));
    }
    note(RECORDED, `${engine}, ${CALLERS[0]} callers`, median(ours));
    const many = await rate(count, CALLERS[1], record);
    note(RECORDED, `${engine}, ${CALLERS[1]} callers`, many);
    if (byHand === undefined) return;
    note(RECORDED, `${byHand.name}, ${CALLERS[0]} callers`, median(alone));
    note(BY_HAND, engine, median(ours) / median(alone));
    await byHand.close();
  });
}

/** What an application without this package would call for each event. */
const ALONE = {
  async postgres(name) {
    const { default: pg } = await import('pg');
    const pool = new pg.Pool({ connectionString: SERVICE_URLS.PostgreSQL });
    const table = `${name}_outbox`;
    await pool.query(`CREATE TABLE ${table} (id bigserial PRIMARY KEY, data jsonb NOT NULL)`);
    return {
      name: 'INSERT into a table by hand',
      record: async () =>
        pool.query(`INSERT INTO ${table} (data) VALUES ($1)`, [dueDelivery('alone').delivery]),
      async close() {
        await pool.query(`DROP TABLE ${table}`);
        await pool.end();
      },
    };
  },
  async bullmq(name) {
    const { Queue } = await import('bullmq');
    const jobs = new Queue(`${name}_alone`, { connection: { url: SERVICE_URLS.Redis } });
    let number = 0;
    return {
      name: 'bullmq alone, add',
      record: async () =>
        jobs.add('job', dueDelivery('alone').delivery, { jobId: `delivery-${number++}` }),
      async close() {
        await jobs.obliterate({ force: true });
        await jobs.close();
      },
    };
  },
};

/** On tables without statistics, as after a burst, and on analysed ones. */
async function measureProcessing(engine, count, note) {
  for (const analyse of ANALYSE[engine] ?? [undefined]) {
    await withQueue(engine, async (queue, name) => {
      await fill(queue, count, 1);
      await analyse?.run(queue, name);
      const start = performance.now();
      await consume(queue, count);
      const kind = analyse === undefined ? '' : `, ${analyse.kind}`;
      note(PROCESSED, `${engine}${kind}`, (count * 1_000) / (performance.now() - start));
    });
  }
}

async function onServer(...statements) {
  const { Client } = await import('pg');
  const client = new Client({ connectionString: SERVICE_URLS.PostgreSQL });
  await client.connect();
  for (const statement of statements) await client.query(statement);
  await client.end();
}

const ANALYSE = {
  postgres: [
    {
      kind: 'fresh table',
      run: async (_, name) =>
        onServer(`ALTER TABLE ${name}.delivery SET (autovacuum_enabled = off)`),
    },
    {
      kind: 'analysed table',
      run: async (_, name) => onServer(`ANALYZE ${name}.delivery, ${name}.attempt`),
    },
  ],
  pglite: [
    { kind: 'fresh table', run: async () => {} },
    { kind: 'analysed table', run: async (queue) => (await queue.database()).exec('ANALYZE') },
  ],
};

async function rate(count, callers, act) {
  let left = count;
  const caller = async () => {
    while (left-- > 0) await act();
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: callers }, caller));
  return (count * 1_000) / (performance.now() - start);
}

async function consume(queue, count) {
  const handled = new Set();
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  await queue.consume(async ({ id }) => {
    // Counts ids: a delivery that is handed out twice counts once.
    if (handled.add(id).size === count) finish();
    return delivered();
  });
  await finished;
}

/** With an attempt: an endpoint whose first attempt has not ended gets two slots. */
function delivered() {
  const attempt = { attempt: 1, at: Date.now(), durationMs: 1, method: 'POST', statusCode: 204 };
  return { outcome: { type: 'delivered' }, attempt };
}

/** Deliveries with ordering keys against those without, from the call that records them to the recorded outcome. */
async function ordering(mode, only) {
  const results = [];
  for (const engine of await present()) {
    const title = `recorded and handed out, ${KEYS} ordering keys, ${engine}`;
    if (!title.includes(only)) continue;
    await withQueue(engine, async (plain) =>
      withQueue(engine, async (keyed) => {
        const runs = [
          { name: 'without keys', turn: await consumer(plain, false), pairs: [] },
          { name: 'with keys', turn: await consumer(keyed, true), pairs: [] },
        ];
        for (const { turn } of runs) await turn(KEYS);
        const count = KEYED_TURN[mode] * (engine === 'memory' ? MEMORY_TURNS : 1);
        await compareTurns(runs, count, KEYED_ROUNDS[mode]);
        results.push(report(title, runs[0].name, runs, 'a delivery'));
      }),
    );
  }
  return results;
}

async function compareTurns(runs, count, rounds) {
  for (let round = 0; round < rounds; round++) {
    for (const { turn, pairs } of runs) {
      const isFirst = round % 2 === 0;
      let beside = isFirst ? await runs[0].turn(count) : 0;
      const own = await turn(count);
      if (!isFirst) beside = await runs[0].turn(count);
      pairs.push({ own, ratio: beside / own });
    }
  }
}

/** @returns a function that records a number of deliveries, and resolves to the microseconds that each took until its outcome */
async function consumer(queue, isKeyed) {
  let [number, left, finish] = [0, 0];
  await queue.consume(async () => {
    if (--left === 0) finish();
    return delivered();
  });
  const record = async () => {
    const item = dueDelivery(`delivery-${number}`);
    // A prime number of steps, so that neighbours have distant keys.
    const orderingKey = `key-${(number++ * 7_919) % KEYS}`;
    await queue.enqueue([
      isKeyed ? { ...item, delivery: { ...item.delivery, orderingKey } } : item,
    ]);
  };
  return async (count) => {
    left = count;
    const finished = new Promise((resolve) => (finish = resolve));
    const start = performance.now();
    await rate(count, CALLERS[0], record);
    await finished;
    await queue.flush();
    return ((performance.now() - start) * 1_000) / count;
  };
}
