import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { ENGINES, openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';

const NEEDS = { 'pg-boss': 'PostgreSQL', bullmq: 'Redis' };
/** Number of concurrent writers, each waiting for its acknowledgement. */
const WRITERS = 20;
const CONCURRENCY = 50;

const ROUNDS = { full: 3, quick: 1 };
const RATES = {
  recorded: 'deliveries that a queue records a second, one call each',
  processed: 'deliveries that a queue hands to a handler which does nothing, a second',
};

/** Throughput of the queues in wall time, since they mostly wait for their databases. */
export async function run({ quick = false, only = '' } = {}) {
  if (!Object.values(RATES).some((title) => title.includes(only))) return [];
  const count = quick ? 500 : 4_000;
  console.log(`\nqueues: ${count} deliveries, ${WRITERS} writers, ${CONCURRENCY} attempts at once`);
  const engines = await present();
  const taken = [];
  for (let round = 0; round < ROUNDS[quick ? 'quick' : 'full']; round++) {
    for (const engine of round % 2 === 0 ? engines : engines.toReversed()) {
      taken.push(await measure(engine, count));
    }
  }
  return Object.entries(RATES).map(([rate, title]) => print(title, engines, taken, rate));
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

function print(title, engines, taken, rate) {
  const rows = engines.map((name) => {
    const rounds = taken.filter(({ engine }) => engine === name).map((round) => round[rate]);
    const all = rounds.toSorted((a, b) => a - b);
    return { name, value: all[all.length >> 1], low: all[0], high: all.at(-1) };
  });
  console.log(`\n${title}`);
  for (const { name, value, low, high } of rows) {
    console.log(`  ${name.padEnd(40)} ${String(value).padStart(8)}  (${low}–${high})`);
  }
  return { title, unit: 'deliveries a second', rows };
}

async function measure(engine, count) {
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
  const place = engine === 'memory' ? {} : { postgres, redis, name, directory };
  const limits = { concurrency: CONCURRENCY, concurrencyPerDestination: CONCURRENCY };
  const queue = await openQueue(engine, { ...place, ...limits });
  try {
    // The first call opens connections and creates tables.
    await queue.enqueue([deliveryOf('first')]);
    const recorded = await rate(count, () => record(queue, count));
    const processed = await rate(count, () => consume(queue, count + 1));
    return { engine, recorded, processed };
  } finally {
    await queue.stop(Date.now() + 5_000);
    await dropJobs(engine, { postgres, redis, name });
    await rm(directory, { recursive: true, force: true });
  }
}

async function rate(count, act) {
  const start = performance.now();
  await act();
  return Math.round((count * 1_000) / (performance.now() - start));
}

async function record(queue, count) {
  let number = 0;
  const writer = async () => {
    while (number < count) await queue.enqueue([deliveryOf(`delivery-${number++}`)]);
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
}

async function consume(queue, count) {
  const handled = new Set();
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  await queue.consume(async ({ id }) => {
    // Counts ids: a delivery that is handed out twice counts once.
    if (handled.add(id).size === count) finish();
    return { type: 'delivered' };
  });
  await finished;
}

function deliveryOf(id) {
  const now = Date.now();
  const payload = { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' };
  const delivery = { id, eventId: id, event: 'order.created', endpointId: 'crm', payload };
  return { delivery: { ...delivery, createdAt: now }, notBefore: now };
}
