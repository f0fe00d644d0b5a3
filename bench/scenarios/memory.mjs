import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';

const ROUNDS = { full: 5, quick: 1 };
const VARIANTS = {
  spooled: { name: 'nestjs-webhook-token, event.stream()', count: 100 },
  // Fewer, because this variant holds every body in memory, some of them twice.
  buffered: { name: 'rawBody and a check by hand', count: 20 },
};

/** Memory and CPU cost of large bodies that arrive at once, are verified, and are read by a handler. */
export async function run({ quick = false, only = '' }) {
  const results = [];
  for (const adapter of ['express', 'fastify']) {
    for (const [variant, { name, count }] of Object.entries(VARIANTS)) {
      const title = `${count} POSTs of 32 MB at once on ${adapter}, ${name}`;
      if (!title.includes(only)) continue;
      const rounds = await measure(adapter, variant, count, ROUNDS[quick ? 'quick' : 'full']);
      results.push(print(title, rounds));
    }
  }
  return results;
}

async function measure(adapter, variant, count, times) {
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-bench-'));
  const receiver = start('receiver', [adapter, variant, count, directory]);
  try {
    const [{ port }] = await once(receiver, 'message');
    // Warm-up: code that is loaded once and buffers that are reused do not count as growth.
    await sendAll(port, 1);
    const rounds = [];
    const idle = monitorEventLoopDelay({ resolution: 1 });
    idle.enable();
    for (let round = 0; round < times; round++) {
      await ask(receiver, 'begin');
      idle.reset();
      await sendAll(port, count);
      const { whole, ...measured } = await ask(receiver, 'end');
      if (whole !== count) throw new Error(`Only ${whole} of ${count} bodies were handled.`);
      const left = await readdir(directory);
      if (left.length > 0)
        throw new Error(`${left.length} files were left in the spool directory.`);
      rounds.push({ ...measured, cpu: measured.cpu / count, idle: idle.max / 1e6 });
    }
    return rounds;
  } finally {
    receiver.disconnect();
    await rm(directory, { recursive: true, force: true });
  }
}

async function sendAll(port, count) {
  const [code] = await once(start('sender', [port, count]), 'exit');
  if (code !== 0) throw new Error('The receiver did not accept every body.');
}

async function ask(receiver, question) {
  const answer = once(receiver, 'message');
  receiver.send(question);
  return (await answer)[0];
}

function start(script, args) {
  const path = fileURLToPath(new URL(`../memory/${script}.mjs`, import.meta.url));
  return fork(path, args.map(String), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
}

/**
 * Reports medians of the rounds with their ranges, and the maximum of the memory. This process is idle during a round, so the
 * delay of its own event loop shows how much of the receiver's delay is due to the machine.
 */
function print(title, rounds) {
  const rows = [
    { name: 'growth of RSS, MB', value: Math.max(...rounds.map(({ growth }) => growth)) / 1e6 },
    { name: 'highest delay of the event loop, ms', ...median(rounds, 'delay') },
    { name: 'the same of an idle process, ms', ...median(rounds, 'idle') },
    { name: 'CPU of a request, ms', ...median(rounds, 'cpu') },
  ];
  console.log(`\n${title}`);
  for (const { name, value, low, high } of rows) {
    const spread = low === undefined ? '' : `  (${low.toFixed(2)}–${high.toFixed(2)})`;
    console.log(`  ${name.padEnd(40)} ${value.toFixed(2).padStart(8)}${spread}`);
  }
  return { title, rows };
}

function median(rounds, member) {
  const all = rounds.map((round) => round[member]).toSorted((a, b) => a - b);
  return { value: all[all.length >> 1], low: all[0], high: all.at(-1) };
}
