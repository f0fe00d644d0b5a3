/**
 * Publishes and receives on several instances while their servers or the instances themselves fail, and counts lost events:
 * `node test/clusters/run.mjs [SET-UP…] [--seconds n] [--json]`.
 *
 * Each set-up starts its own servers. The exit code is 1 if an acknowledged event was not handled.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Trial } from './trial.mjs';
import { Workshop, program } from './servers.mjs';
import { SET_UPS } from './set-ups.mjs';
import { migrate } from './stores.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    /** Of load: a third comes before the failure, and a third after its end. */
    seconds: { type: 'string', default: '15' },
    json: { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);
/** Milliseconds that a trial waits for deliveries to come back. */
const LONGEST_ABSENCE = 120_000;
const names = positionals.length > 0 ? positionals : Object.keys(SET_UPS);
const unknown = names.filter((name) => SET_UPS[name] === undefined);
if (unknown.length > 0 || !(seconds > 0)) {
  console.error(
    `Choose from ${Object.keys(SET_UPS).join(', ')}; --seconds takes a positive number.`,
  );
  process.exit(2);
}

const rows = [];
for (const name of names) {
  const { needs } = SET_UPS[name];
  const missing = needs.filter((one) => program(one) === undefined);
  if (missing.length > 0) {
    console.error(`Skipped ${name}: ${missing.join(', ')} not found.`);
    continue;
  }
  rows.push({ name, ...(await runOn(SET_UPS[name])) });
  console.error(`  ${name}: ${JSON.stringify(rows.at(-1))}`);
}

async function runOn({ open, instances, pause, trouble }) {
  const workshop = await Workshop.open();
  let servers;
  let trial;
  try {
    servers = await open(workshop);
    await migrate(servers.place);
    trial = await Trial.start(servers.place, instances, pause);
    return await Promise.race([measure(trial, servers, trouble), trial.broken]);
  } finally {
    await trial?.stop();
    servers?.close?.();
    await workshop.close();
  }
}

async function measure(trial, servers, trouble) {
  const memory = [await trial.memory()];
  trial.publish();
  await sleep((seconds * 1_000) / 3);
  memory.push(await trial.memory());
  await trouble({ servers, trial, seconds });
  const over = Date.now();
  await untilBack(trial, over);
  memory.push(await trial.memory());
  await sleep((seconds * 1_000) / 3);
  memory.push(await trial.memory());
  await trial.drain();
  return {
    acknowledged: trial.acknowledged.size,
    refused: trial.refused,
    lost: trial.lost().length,
    twice: trial.duplicates,
    back: trial.backAfter(over),
    longest: trial.longest(),
    memory,
  };
}

/** Waits until an event was handled that was published after a time. */
async function untilBack(trial, time) {
  const deadline = Date.now() + LONGEST_ABSENCE;
  while (trial.backAfter(time) === Infinity && Date.now() < deadline) await sleep(100);
}

const inSeconds = (milliseconds) => `${(milliseconds / 1_000).toFixed(1)} s`;

function toMarkdown({ name, acknowledged, refused, lost, twice, back, longest, memory }) {
  const times = [back, longest].map(inSeconds);
  const heaps = memory.map(({ heap }) => `${heap} MB`).join(' → ');
  return `| ${[name, acknowledged, refused, lost, twice, ...times, heaps].join(' | ')} |`;
}
const header = [
  '| Set-up | Acknowledged | Rejected calls | Lost | Handled twice | Back after | Longest delay | Heap |',
  '| --- | --- | --- | --- | --- | --- | --- | --- |',
];
console.log(values.json ? JSON.stringify(rows) : [...header, ...rows.map(toMarkdown)].join('\n'));
process.exit(rows.every(({ lost }) => lost === 0) ? 0 : 1);
