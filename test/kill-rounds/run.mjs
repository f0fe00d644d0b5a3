/**
 * Kills publishers while they record and deliver, then counts what was lost:
 * `node test/kill-rounds/run.mjs [--rounds n] [--engine name,…] [--json]`.
 *
 * The queue in memory is there to be compared with. For the others, a delivery that was acknowledged and never made
 * makes the exit code 1.
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
    engine: { type: 'string', default: 'all' },
    json: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
const engines = values.engine === 'all' ? ENGINES : values.engine.split(',');
if (engines.some((engine) => !ENGINES.includes(engine)) || !(rounds > 0)) {
  console.error(`--engine is all or a list of ${ENGINES.join(', ')}; --rounds is a number`);
  process.exit(2);
}

const NEEDS = { 'pg-boss': 'PostgreSQL', bullmq: 'Redis' };
const { PostgreSQL: postgres, Redis: redis } = SERVICE_URLS;
const rows = [];
for (const engine of engines) {
  const service = NEEDS[engine];
  if (service !== undefined && !(await answers(SERVICE_URLS[service]))) {
    console.error(`Skipped ${engine}: no ${service} at ${new URL(SERVICE_URLS[service]).host}.`);
    continue;
  }
  const name = `kill_${randomBytes(6).toString('hex')}`;
  const directory = await mkdtemp(join(tmpdir(), 'webhooks-kill-'));
  try {
    const place = engine === 'memory' ? {} : { postgres, redis, name, directory };
    rows.push(await killRounds(engine, place, rounds));
  } finally {
    await dropJobs(engine, { postgres, redis, name });
    await rm(directory, { recursive: true, force: true });
  }
}

function toMarkdown({ engine, kills, acknowledged, lost, twice }) {
  const cells = [engine, kills, acknowledged, lost.length, twice];
  return `| ${cells.map((cell) => cell.toLocaleString('en-GB')).join(' | ')} |`;
}
const header = [
  '| Queue | Kills | Acknowledged | Lost | Delivered twice |',
  '| --- | --- | --- | --- | --- |',
];
console.log(values.json ? JSON.stringify(rows) : [...header, ...rows.map(toMarkdown)].join('\n'));
process.exit(rows.every(({ engine, lost }) => engine === 'memory' || lost.length === 0) ? 0 : 1);
