import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';
import { dueDelivery, median } from '../deliveries.mjs';

const TITLE = 'milliseconds from an idle publish to its attempt by another process, median';
const SAMPLES = { full: 200, quick: 30 };
/** Samples that wait for a poll, and the poll interval. */
const POLLED = 20;
const POLL = '1s';

/** How long a delivery waits that one connection records and another one, which is idle, attempts. */
export async function run({ quick = false, only = '' } = {}) {
  if (!TITLE.includes(only)) return [];
  const postgres = SERVICE_URLS.PostgreSQL;
  if (!(await answers(postgres))) {
    console.log(`  skipped lag: PostgreSQL does not answer at ${postgres}`);
    return [];
  }
  const samples = SAMPLES[quick ? 'quick' : 'full'];
  const rows = [
    await measure('postgres, notified', { notify: true }, samples),
    await measure('postgres, in a transaction', { notify: true, isInTransaction: true }, samples),
    await measure('postgres, polling', { notify: false }, POLLED),
  ];
  console.log(`\n${TITLE}`);
  for (const { name, value, high } of rows) {
    console.log(`  ${name.padEnd(40)} ${value.toFixed(1).padStart(8)}  (95 %: ${high.toFixed(1)})`);
  }
  return [{ title: TITLE, unit: 'ms', rows }];
}

async function measure(label, { notify, isInTransaction = false }, samples) {
  const postgres = SERVICE_URLS.PostgreSQL;
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const place = { postgres, name, notify, pollInterval: POLL };
  const [publishing, idle] = [
    await openQueue('postgres', place),
    await openQueue('postgres', place),
  ];
  const { Client } = await import('pg');
  const client = new Client({ connectionString: postgres });
  let handled = () => {};
  try {
    await client.connect();
    await idle.consume(async () => {
      handled(performance.now());
      return { outcome: { type: 'delivered' } };
    });
    const lags = [];
    for (let sample = 0; sample < samples + 3; sample++) {
      // At any point of the poll interval, after the outcome before is written.
      await sleep(20 + 80 * Math.random());
      const arrived = new Promise((resolve) => (handled = resolve));
      const item = dueDelivery(`delivery-${sample}`);
      if (isInTransaction) {
        await client.query('BEGIN');
        await publishing.enqueue([item], { tx: client });
      }
      const start = performance.now();
      await (isInTransaction ? client.query('COMMIT') : publishing.enqueue([item]));
      lags.push((await arrived) - start);
    }
    // The first ones open connections.
    const warm = lags.slice(3).toSorted((a, b) => a - b);
    return { name: label, value: median(warm), high: warm[Math.floor(warm.length * 0.95)] };
  } finally {
    await client.end();
    await Promise.all([publishing, idle].map(async (queue) => queue.stop(Date.now() + 5_000)));
    await dropJobs('postgres', { postgres, name });
  }
}
