// A sender in its own process: node bench/send/sender.mjs VARIANT URL LOAD
import 'reflect-metadata';
import { dataOf } from '../event.mjs';
import { CONCURRENCY, LOADS } from './settings.mjs';

const [, , variant, url, load] = process.argv;
const { method, lines } = LOADS[load];
// Loads only the modules that the variant needs.
const { [variant]: make } =
  variant.startsWith('send') || variant === 'publish'
    ? (await import('./with-publisher.mjs')).WITH_PUBLISHER
    : (await import('./by-hand.mjs')).BY_HAND;
const send = await make(url, { method, data: dataOf(lines) });

/** Sends this many requests with limited concurrency; reports the CPU time of this process in microseconds. */
async function cost(count) {
  const before = process.cpuUsage();
  let left = count;
  const lane = async () => {
    while (left-- > 0) {
      const status = await send();
      if (status !== 204) throw new Error(`The sink answered ${status}.`);
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
