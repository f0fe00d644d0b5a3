import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { ENGINES, openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';

const NEEDS = { 'pg-boss': 'PostgreSQL', bullmq: 'Redis' };
/** Publishers that wait for their acknowledgement at once. */
const WRITERS = 20;
const CONCURRENCY = 50;

/** Deliveries a second that each queue records, one call each, and that it hands to a handler which does nothing. */
export async function run({ quick = false } = {}) {
  const count = quick ? 500 : 4_000;
  console.log(`\nQueues: ${count} deliveries, ${WRITERS} writers, ${CONCURRENCY} attempts at once`);
  const rows = [];
  for (const engine of ENGINES) {
    const service = NEEDS[engine];
    if (service !== undefined && !(await answers(SERVICE_URLS[service]))) continue;
    const row = await measure(engine, count);
    rows.push(row);
    console.log(
      `  ${engine.padEnd(10)} ${row.recorded.toString().padStart(8)} recorded/s ${row.processed.toString().padStart(8)} processed/s`,
    );
  }
  return { title: 'Queues', count, rows };
}

async function measure(engine, count) {
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
  const place = engine === 'memory' ? {} : { postgres, redis, name, directory };
  const limits = { concurrency: CONCURRENCY, concurrencyPerDestination: CONCURRENCY };
  const queue = await openQueue(engine, { ...place, ...limits });
  try {
    // Opens what is opened once.
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
  let left = count;
  await new Promise((resolve, reject) => {
    const handler = async () => {
      if (--left === 0) resolve();
      return { type: 'delivered' };
    };
    queue.consume(handler).catch(reject);
  });
}

function deliveryOf(id) {
  const now = Date.now();
  const payload = { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' };
  const delivery = { id, eventId: id, event: 'order.created', endpointId: 'crm', payload };
  return { delivery: { ...delivery, createdAt: now }, notBefore: now };
}
