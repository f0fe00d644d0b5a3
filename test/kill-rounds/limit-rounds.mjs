/**
 * Kills one of four processes that attempt the deliveries of a limited endpoint, a second after it is ready, again and again, and counts
 * at the receiver: requests at once, requests in any second, and lost deliveries:
 * `node test/kill-rounds/limit-rounds.mjs --engine postgres|bullmq [--kills n] [--processes n] [--count n]`.
 *
 * Prints JSON. The exit code is 1 if a limit was exceeded or a delivery was lost.
 */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ScriptProcess } from '../fixtures/child-process.mjs';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { openQueue } from '../fixtures/durable-queues.mjs';
import { SERVICE_URLS } from '../fixtures/service-urls.mjs';

const { values } = parseArgs({
  options: {
    engine: { type: 'string', default: 'postgres' },
    kills: { type: 'string', default: '8' },
    processes: { type: 'string', default: '4' },
    count: { type: 'string', default: '600' },
    concurrency: { type: 'string', default: '3' },
    rate: { type: 'string', default: '40' },
  },
});
const { engine } = values;
const [kills, processes, count, concurrency, perSecond] = [
  values.kills,
  values.processes,
  values.count,
  values.concurrency,
  values.rate,
].map(Number);
const BURST = 10;
const LIMITS = { concurrency, perSecond, burst: BURST };
/** Milliseconds that a request may take from its claim to the receiver. */
const TRAVEL = 250;
/** Milliseconds without a request after which nothing more is expected: longer than any lease. */
const PATIENCE = 60_000;
const SCRIPT = new URL('limited.process.mjs', import.meta.url);

const place = {
  postgres: SERVICE_URLS.PostgreSQL,
  redis: SERVICE_URLS.Redis,
  name: `limits_${randomBytes(6).toString('hex')}`,
  concurrency: 20,
  concurrencyPerDestination: 20,
};
const delivered = new Map();
const arrivals = [];
let running = 0;
let most = 0;
const server = createServer((request, response) => {
  arrivals.push(performance.now());
  most = Math.max(most, ++running);
  let isOpen = true;
  const close = () => {
    if (isOpen) running--;
    isOpen = false;
  };
  let id = '';
  request.on('data', (data) => (id += data));
  request.on('end', () => {
    setTimeout(() => {
      close();
      const isFailing = Math.random() < 0.1;
      if (!isFailing) delivered.set(id, (delivered.get(id) ?? 0) + 1);
      response.writeHead(isFailing ? 503 : 204).end();
    }, 40);
  });
  // A killed process sends nothing more; its request has ended.
  response.on('close', close);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}/`;

const ids = Array.from({ length: count }, (_, number) => `delivery-${number}`);
const recorder = await openQueue(engine, place);
await recorder.enqueue(
  ids.map((id, number) => ({
    delivery: {
      id,
      eventId: id,
      event: 'order.created',
      endpointId: 'limited',
      ...(number % 3 === 0 && { orderingKey: `key-${number % 7}` }),
      payload: { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' },
      createdAt: Date.now(),
    },
    notBefore: Date.now(),
    limits: LIMITS,
  })),
);
function start() {
  let ready;
  const isReady = new Promise((resolve) => (ready = resolve));
  return { child: new ScriptProcess(SCRIPT, { engine, place, url }, () => ready()), isReady };
}
const children = Array.from({ length: processes }, start);
const begin = performance.now();
for (let kill = 0; kill < kills; kill++) {
  const { child, isReady } = children[kill % processes];
  await isReady;
  await sleep(1_000);
  await child.kill();
  children[kill % processes] = start();
}
const silence = () => performance.now() - Math.max(begin, arrivals.at(-1) ?? 0);
while (delivered.size < count && silence() < PATIENCE) await sleep(200);
const seconds = (performance.now() - begin) / 1_000;
for (const { child } of children) await child.kill();
await recorder.stop(Date.now() + 1_000);
await dropJobs(engine, place);
server.close();

/** The most requests in a window of some milliseconds. */
function mostWithin(ms) {
  let [first, highest] = [0, 0];
  for (let last = 0; last < arrivals.length; last++) {
    while (arrivals[last] - arrivals[first] > ms) first++;
    highest = Math.max(highest, last - first + 1);
  }
  return highest;
}
const windows = [1_000, 5_000].map((ms) => ({
  ms,
  most: mostWithin(ms),
  allowed: BURST + Math.ceil((perSecond * (ms + TRAVEL)) / 1_000),
}));
const lost = count - delivered.size;
const twice = [...delivered.values()].filter((times) => times > 1).length;
const result = { engine, kills, processes, requests: arrivals.length, lost, twice, concurrency };
console.log(
  JSON.stringify({
    ...result,
    mostAtOnce: most,
    windows,
    perSecond: Math.round(arrivals.length / seconds),
    seconds: Math.round(seconds),
  }),
);
const isRight = lost === 0 && most <= concurrency && windows.every((w) => w.most <= w.allowed);
process.exit(isRight ? 0 : 1);
