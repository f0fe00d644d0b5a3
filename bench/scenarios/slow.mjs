import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { ENGINES, openQueue } from '../../test/fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';

const NEEDS = { postgres: 'PostgreSQL', bullmq: 'Redis' };
const ENDPOINTS = 100;
const SLOW = 5;
/** Milliseconds. */
const FAST_ATTEMPT = 100;
const SLOW_ATTEMPT = 14_000;
/** Milliseconds between two events to each endpoint. */
const PERIOD = 400;

/** What fast endpoints keep of their rate while 5 % of all endpoints take 14 seconds. */
export async function run({ quick = false, only = '' } = {}) {
  const title =
    'rate of 95 fast endpoints beside 5 that take 14 s, in % of their rate without them';
  if (!title.includes(only)) return [];
  const seconds = quick ? 8 : 20;
  console.log(`\n${title}`);
  const rows = [];
  for (const engine of ENGINES) {
    const service = NEEDS[engine];
    if (service !== undefined && !(await answers(SERVICE_URLS[service]))) continue;
    const alone = await fastRate(engine, 0, seconds);
    const beside = await fastRate(engine, SLOW, seconds);
    const value = Math.round((100 * beside) / alone);
    console.log(`  ${engine.padEnd(40)} ${value} %  (${beside} of ${alone} a second)`);
    rows.push({ name: engine, value, low: value, high: value });
  }
  return [{ title, unit: '%', rows }];
}

async function fastRate(engine, slow, seconds) {
  const name = `bench_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
  const queue = await openQueue(
    engine,
    engine === 'memory' ? {} : { postgres, redis, name, directory },
  );
  try {
    let delivered = 0;
    await queue.consume(async ({ endpointId }) => {
      const number = Number(endpointId);
      await sleep(number < slow ? SLOW_ATTEMPT : FAST_ATTEMPT);
      if (number >= SLOW) delivered++;
      return { outcome: { type: 'delivered' } };
    });
    const endpoints = Array.from({ length: ENDPOINTS }, (_, index) => index);
    const recorded = endpoints.filter((number) => number < slow || number >= SLOW);
    const end = Date.now() + seconds * 1_000;
    for (let round = 0; Date.now() < end; round++) {
      const next = Date.now() + PERIOD;
      await queue.enqueue(recorded.map((number) => deliveryTo(number, round)));
      await sleep(Math.max(0, next - Date.now()));
    }
    return Math.round(delivered / seconds);
  } finally {
    await queue.stop(Date.now() + 1_000);
    await dropJobs(engine, { postgres, redis, name });
    await rm(directory, { recursive: true, force: true });
  }
}

function deliveryTo(number, round) {
  const id = `${number}-${round}`;
  const now = Date.now();
  const payload = { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' };
  const delivery = { id, eventId: id, event: 'order.created', endpointId: `${number}`, payload };
  return { delivery: { ...delivery, createdAt: now }, notBefore: now };
}
