import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';

const ENGINES = ['postgres', 'pglite'];
/** Numbers of due deliveries in the queue. */
const BACKLOGS = { full: [1_000, 10_000, 100_000], quick: [1_000, 10_000] };
/** Numbers of endpoints of the backlog. With one endpoint, most claims find no free slot. */
const ENDPOINTS = [100, 1];
/** Deliveries that are processed for each measurement. */
const PROCESSED = 1_000;

const RATE =
  'deliveries that a queue with a backlog hands to a handler which does nothing, a second';
const SLOWDOWN = 'times as long for a delivery with the largest backlog as with the smallest';

/** Throughput of a queue with a large backlog, compared with a small one. */
export async function run({ quick = false, only = '' } = {}) {
  if (![RATE, SLOWDOWN].some((title) => title.includes(only))) return [];
  const rates = [];
  const slowdowns = [];
  for (const engine of ENGINES) {
    if (engine === 'postgres' && !(await answers(SERVICE_URLS.PostgreSQL))) {
      console.log(`  skipped postgres: PostgreSQL does not answer at ${SERVICE_URLS.PostgreSQL}`);
      continue;
    }
    for (const endpoints of ENDPOINTS) {
      const name = `${engine}, ${endpoints === 1 ? 'one endpoint' : `${endpoints} endpoints`}`;
      const values = [];
      for (const backlog of BACKLOGS[quick ? 'quick' : 'full']) {
        const value = await measure(engine, backlog, endpoints);
        values.push(value);
        rates.push({ name: `${name}, ${backlog}`, value });
      }
      slowdowns.push({ name, value: values[0] / values.at(-1) });
    }
  }
  print(RATE, rates, 0);
  print(SLOWDOWN, slowdowns, 2);
  return [
    { title: RATE, unit: 'deliveries a second', rows: rates },
    { title: SLOWDOWN, unit: 'times', rows: slowdowns },
  ];
}

function print(title, rows, digits) {
  console.log(`\n${title}`);
  for (const { name, value } of rows) {
    console.log(`  ${name.padEnd(40)} ${value.toFixed(digits).padStart(8)}`);
  }
}

async function measure(engine, backlog, endpoints) {
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const postgres = SERVICE_URLS.PostgreSQL;
  const queue = await openQueue(engine, { postgres, name, directory });
  try {
    for (let from = 0; from < backlog; from += 1_000) {
      const ids = Array.from({ length: Math.min(1_000, backlog - from) }, (_, at) => from + at);
      await queue.enqueue(ids.map((id) => deliveryTo(`endpoint-${id % endpoints}`, id)));
    }
    const start = performance.now();
    await consume(queue);
    return (PROCESSED * 1_000) / (performance.now() - start);
  } finally {
    await queue.stop(Date.now() + 5_000);
    await dropJobs(engine, { postgres, name });
    await rm(directory, { recursive: true, force: true });
  }
}

async function consume(queue) {
  let handled = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  await queue.consume(async () => {
    if (++handled === PROCESSED) finish();
    return { outcome: { type: 'delivered' } };
  });
  await finished;
}

function deliveryTo(endpointId, number) {
  const now = Date.now();
  const payload = { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' };
  const id = `delivery-${number}`;
  const delivery = { id, eventId: id, event: 'order.created', endpointId, payload };
  return { delivery: { ...delivery, createdAt: now }, notBefore: now };
}
