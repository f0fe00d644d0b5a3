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
  // Fewer: it has all of them in memory, and some of them twice.
  buffered: { name: 'rawBody and a check by hand', count: 20 },
};

/** What large bodies take while they come in all at once, are verified, and are read by a handler. */
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
    // What is loaded and compiled once is no growth, and neither are buffers that are kept for the next body.
    await sendAll(port, 1);
    const rounds = [];
    const idle = monitorEventLoopDelay({ resolution: 1 });
    idle.enable();
    for (let round = 0; round < times; round++) {
      await ask(receiver, 'begin');
      idle.reset();
      await sendAll(port, count);
      const { whole, ...measured } = await ask(receiver, 'end');
      if (whole !== count) throw new Error(`${whole} of ${count} bodies were handled`);
      const left = await readdir(directory);
      if (left.length > 0) throw new Error(`${left.length} files were left behind`);
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
  if (code !== 0) throw new Error('not every body was taken');
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
 * Medians of the rounds, and between what they lie; of the memory the highest. This process has nothing to do meanwhile: by as
 * much as its own loop is late, it is the machine that is busy and not the receiver.
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
