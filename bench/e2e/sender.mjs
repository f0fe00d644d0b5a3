// Publishes and delivers in its own process: node bench/e2e/sender.mjs VARIANT ENGINE URL
import 'reflect-metadata';
import { randomBytes } from 'node:crypto';
import { dropJobs } from '../../test/fixtures/drop-jobs.mjs';
import { SERVICE_URLS } from '../../test/fixtures/service-urls.mjs';
import { dataOf } from '../event.mjs';
import { CALLERS, CLIENTS, now } from './settings.mjs';

const [, , variant, engine, url] = process.argv;
const name = `bench_${randomBytes(6).toString('hex')}`;
const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
const place = { postgres, redis, name };
const event = { method: 'POST', data: dataOf(14) };

/** Resolves once this many deliveries were acknowledged by the receiver and recorded. */
let delivered;
let left = 0;
const onDelivered = () => {
  if (--left === 0) delivered();
};
const open =
  variant === 'library'
    ? (await import('./with-library.mjs')).openLibrary
    : (await import('./by-hand.mjs')).OPEN_BY_HAND[engine];
const client = CLIENTS[variant];
const { publish, close } = await open({ engine, place, url, event, client, onDelivered });

/** @returns wall time and CPU time of this process, and the time of the first call, in milliseconds */
async function run(count) {
  const finished = new Promise((resolve) => (delivered = resolve));
  left = count;
  let unpublished = count;
  const before = process.cpuUsage();
  const start = now();
  const caller = async () => {
    while (unpublished-- > 0) await publish();
  };
  await Promise.all(Array.from({ length: Math.min(CALLERS, count) }, caller));
  await finished;
  const { user, system } = process.cpuUsage(before);
  return { start, wall: now() - start, cpu: (user + system) / 1_000 };
}

async function end() {
  await close();
  await dropJobs(engine, place);
  process.exit(0);
}

process.on('message', (count) => void run(count).then((result) => process.send(result)));
process.on('disconnect', () => void end());
process.send('ready');
