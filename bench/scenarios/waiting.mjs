import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Client } from 'pg';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';
import { fill, median } from '../deliveries.mjs';

const NEEDS = { postgres: 'PostgreSQL', bullmq: 'Redis' };
/** Numbers of waiting deliveries. */
const BACKLOGS = { full: [10_000, 100_000], quick: [5_000, 20_000] };
const ENDPOINTS = 1_000;
/** Every so many endpoints, one never answers. */
const HANGING = 50;
/** Deliveries before the measurement, in which the endpoints that hang take their slots, and deliveries measured. */
const WARM_UP = 500;
const MEASURED = 3_000;

const RATE =
  'deliveries handed out a second, of those that wait for 1,000 endpoints, 20 of them hanging';
const HEAP = 'MB of heap, with so many deliveries waiting';
const CLAIM = 'milliseconds of a claim, median';
const SLOWDOWN = 'times as long for a delivery with the most waiting as with the fewest';

/** Throughput, memory and claims of a queue with many waiting deliveries, some for endpoints that never answer. */
export async function run({ quick = false, only = '' } = {}) {
  if (![RATE, HEAP, CLAIM, SLOWDOWN].some((title) => title.includes(only))) return [];
  const rows = { [RATE]: [], [HEAP]: [], [CLAIM]: [], [SLOWDOWN]: [] };
  for (const engine of ['postgres', 'pglite', 'bullmq']) {
    const service = NEEDS[engine];
    if (service !== undefined && !(await answers(SERVICE_URLS[service]))) {
      console.log(`  skipped ${engine}: ${service} does not answer at ${SERVICE_URLS[service]}`);
      continue;
    }
    const rates = [];
    for (const backlog of BACKLOGS[quick ? 'quick' : 'full']) {
      const { rate, heap, claim } = await measure(engine, backlog);
      const name = `${engine}, ${backlog}`;
      rates.push(rate);
      rows[RATE].push({ name, value: rate });
      rows[HEAP].push({ name, value: heap });
      if (claim !== undefined) rows[CLAIM].push({ name, value: claim });
    }
    rows[SLOWDOWN].push({ name: engine, value: rates[0] / rates.at(-1) });
  }
  return Object.entries(rows).map(([title, taken]) => {
    console.log(`\n${title}`);
    for (const { name, value } of taken) {
      console.log(`  ${name.padEnd(40)} ${value.toFixed(title === RATE ? 0 : 2).padStart(8)}`);
    }
    return { title, rows: taken };
  });
}

async function measure(engine, backlog) {
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
  const place = { postgres, redis, name, directory };
  const queue = await openQueue(engine, place);
  const claims = engine === 'postgres' ? timedClaims() : undefined;
  try {
    await fill(queue, backlog, ENDPOINTS);
    const rate = await consume(queue, () => claims?.times.splice(0));
    return { rate, heap: heapUsed(), claim: claims && median(claims.times) };
  } finally {
    claims?.restore();
    await queue.stop(Date.now());
    await dropJobs(engine, { postgres, redis, name });
    await rm(directory, { recursive: true, force: true });
  }
}

/** Times the claims of every connection of node-postgres. */
function timedClaims() {
  const { query } = Client.prototype;
  const times = [];
  Client.prototype.query = function (text, ...rest) {
    const start = performance.now();
    const result = Reflect.apply(query, this, [text, ...rest]);
    if (String(text).startsWith('WITH due AS MATERIALIZED')) {
      result.then(() => times.push(performance.now() - start)).catch(() => {});
    }
    return result;
  };
  return { times, restore: () => (Client.prototype.query = query) };
}

async function consume(queue, startMeasuring) {
  let handled = 0;
  let start;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  await queue.consume(async ({ endpointId }) => {
    if (Number(endpointId.slice('endpoint-'.length)) % HANGING === 0) await new Promise(() => {});
    handled++;
    if (handled === WARM_UP) {
      startMeasuring();
      start = performance.now();
    }
    if (handled === WARM_UP + MEASURED) finish(performance.now());
    return { outcome: { type: 'delivered' } };
  });
  const end = await finished;
  return (MEASURED * 1_000) / (end - start);
}

function heapUsed() {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed / 1e6;
}
