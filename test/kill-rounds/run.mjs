/**
 * Kills publishers while they record and deliver, and counts lost and duplicate deliveries, and those that were attempted out
 * of the order of their key:
 * `node test/kill-rounds/run.mjs [--rounds n] [--replicas n] [--engine name,…] [--concurrency n,…] [--json]`.
 *
 * The exit code is 1 if a delivery that was acknowledged did not arrive, or one was attempted out of order. The queue in memory, which is expected to
 * lose deliveries, is included for comparison.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ENGINES } from '../fixtures/durable-queues.mjs';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { answers, SERVICE_URLS } from '../fixtures/service-urls.mjs';
import { killRounds } from './kill-rounds.mjs';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '20' },
    replicas: { type: 'string', default: '1' },
    engine: { type: 'string', default: 'all' },
    concurrency: { type: 'string', default: '20' },
    json: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
const replicas = Number(values.replicas);
const concurrencies = values.concurrency.split(',').map(Number);
const engines = values.engine === 'all' ? ENGINES : values.engine.split(',');
const isNumber = (value) => Number.isSafeInteger(value) && value > 0;
if (
  engines.some((engine) => !ENGINES.includes(engine)) ||
  ![rounds, replicas, ...concurrencies].every(isNumber)
) {
  console.error(
    `Usage: --engine all or a list of ${ENGINES.join(', ')}; --rounds and --replicas a number; --concurrency a list of numbers`,
  );
  process.exit(2);
}

const NEEDS = { postgres: 'PostgreSQL', bullmq: 'Redis' };
const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
const rows = [];
for (const engine of engines) {
  const service = NEEDS[engine];
  if (service !== undefined && !(await answers(SERVICE_URLS[service]))) {
    console.error(`Skipped ${engine}: no ${service} at ${new URL(SERVICE_URLS[service]).host}.`);
    continue;
  }
  for (const concurrency of concurrencies) rows.push(await runOn(engine, concurrency));
}

async function runOn(engine, concurrency) {
  const name = `kill_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-kill-'));
  const limits = { concurrency, concurrencyPerDestination: concurrency };
  try {
    const place = engine === 'memory' ? limits : { postgres, redis, name, directory, ...limits };
    const ledger = join(directory, 'ledger');
    // The others serve one process.
    const isShared = engine === 'postgres' || engine === 'bullmq';
    const how = { rounds, replicas: isShared ? replicas : 1, ledger };
    return await killRounds(engine, place, how);
  } finally {
    await dropJobs(engine, { postgres, redis, name });
    await rm(directory, { recursive: true, force: true });
  }
}

function toMarkdown({ engine, concurrency, kills, acknowledged, lost, twice, inversions }) {
  const percent = `${((100 * twice) / acknowledged).toFixed(1)} %`;
  const cells = [engine, concurrency, kills, acknowledged, lost.length, twice, percent, inversions];
  return `| ${cells.map((cell) => cell.toLocaleString('en-GB')).join(' | ')} |`;
}
const header = [
  '| Queue | Attempts at once | Kills | Acknowledged | Lost | Delivered twice | Share | Out of order |',
  '| --- | --- | --- | --- | --- | --- | --- | --- |',
];
console.log(values.json ? JSON.stringify(rows) : [...header, ...rows.map(toMarkdown)].join('\n'));
const isRight = ({ engine, lost, inversions }) =>
  inversions === 0 && (engine === 'memory' || lost.length === 0);
process.exit(rows.every(isRight) ? 0 : 1);
