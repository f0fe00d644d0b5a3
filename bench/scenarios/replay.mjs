import { hash } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MemoryReplayStore } from '../../build/lib/replay/memory-replay.store.js';

const IDS = 1_000_000;
/** Number of live claims, like requests in flight. With more, the garbage collector would copy them during an operation. */
const BATCH = 1_000;
const HOUR = 3_600_000;

/** The claim of a receiver for the event with this number. */
export function claimOf(number, now = Date.now()) {
  const key = hash('sha256', `event ${number}`, 'base64url');
  const fingerprint = hash('sha256', `data ${number}`, 'base64url');
  const times = { replayUntil: now + 360_000, keepUntil: now + 96 * HOUR, lease: 60_000 };
  return { key, tokenKey: key, fingerprint, ...times, issuer: 'https://shop.example' };
}

/** The in-memory replay store: CPU time of an operation, memory per id, and the slowest operation while a million ids expire. */
export async function run({ quick = false }) {
  const count = quick ? IDS / 4 : IDS;
  const clock = { time: Date.now(), now: () => clock.time };
  const before = memory();
  const store = new MemoryReplayStore({ maxEntries: count, clock });
  const spent = [];
  for (let made = 0; made < count; made += BATCH) {
    const claims = batch(made, clock.time);
    const from = cpu();
    for (const claim of claims) await store.commit((await store.reserve(claim)).reservation);
    spent.push((cpu() - from) / BATCH / 2);
  }
  const bytes = (memory() - before) / count;

  clock.time += 97 * HOUR;
  let dearest = 0;
  for (let made = count; store.size > count / 50 && made < 2 * count; made += BATCH) {
    for (const claim of batch(made, clock.time)) {
      const from = cpu();
      const { reservation } = await store.reserve(claim);
      const between = cpu();
      await store.release(reservation);
      dearest = Math.max(dearest, between - from, cpu() - between);
    }
  }
  const rows = [
    { name: 'CPU of an operation, µs', value: spent.toSorted((a, b) => a - b)[spent.length >> 1] },
    { name: 'memory of an id, bytes', value: bytes },
    { name: 'dearest operation while all expire, ms', value: dearest / 1_000 },
  ];
  const title = 'replay store in memory';
  console.log(`\n${title}, ${count} ids`);
  for (const { name, value } of rows) console.log(`  ${name.padEnd(40)} ${value.toFixed(2)}`);
  return [{ title, rows }];
}

function batch(from, now) {
  return Array.from({ length: BATCH }, (_, i) => claimOf(from + i, now));
}

function cpu() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

function memory() {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
