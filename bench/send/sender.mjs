// One way of sending in a process of its own: node bench/send/sender.mjs VARIANT URL LOAD
import 'reflect-metadata';
import { dataOf } from '../event.mjs';
import { CONCURRENCY, LOADS } from './settings.mjs';

const [, , variant, url, load] = process.argv;
const { method, lines } = LOADS[load];
// Only what the variant needs is loaded.
const { [variant]: make } =
  variant.includes('-undici') || variant.includes('-axios')
    ? (await import('./with-publisher.mjs')).WITH_PUBLISHER
    : (await import('./by-hand.mjs')).BY_HAND;
const send = await make(url, { method, data: dataOf(lines) });

/** Sends so many, some at once, and tells the CPU time of this process for it, in microseconds. */
async function cost(count) {
  const before = process.cpuUsage();
  let left = count;
  const lane = async () => {
    while (left-- > 0) {
      const status = await send();
      if (status !== 204) throw new Error(`answered ${status}`);
    }
  };
  await Promise.all(Array.from({ length: Math.min(CONCURRENCY, count) }, lane));
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

async function answer(count) {
  try {
    process.send({ cpu: await cost(count) });
  } catch (error) {
    process.send({ fault: String(error) });
  }
}

process.on('message', (count) => void answer(count));
process.on('disconnect', () => process.exit(0));
process.send('ready');
