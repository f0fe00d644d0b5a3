/**
 * Kills publishers and receivers, loses answers and fails handlers, then counts: `node test/chaos/run.mjs [--seconds n]
 * [--seed n] [--engine name,…] [--json]`.
 *
 * Each row is a run of two publishers and two receivers, one on Express and one on Fastify, as processes of their own. What was
 * acknowledged must have had its effect, and no effect twice. The queue in memory and the receivers without a replay
 * store are there to be compared with: they promise neither. A row that does not keep what it promises makes the exit code 1.
 */
import { parseArgs } from 'node:util';
import { ENGINES } from '../fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../fixtures/service-urls.mjs';
import { Conductor } from './conductor.mjs';
import { keepsItsPromise, toMarkdown } from './table.mjs';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    engine: { type: 'string', default: ENGINES.join(',') },
    replay: { type: 'string' },
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);
const seed = Number(values.seed);
const engines = values.engine === 'all' ? ENGINES : values.engine.split(',');
const unknown = engines.filter((engine) => !ENGINES.includes(engine));
if (unknown.length > 0 || !(seconds > 0) || !Number.isSafeInteger(seed)) {
  console.error(`--engine is a list of ${ENGINES.join(', ')}; --seconds and --seed are numbers`);
  process.exit(2);
}

const postgres = (await answers(SERVICE_URLS.PostgreSQL)) ? SERVICE_URLS.PostgreSQL : undefined;
const redis = (await answers(SERVICE_URLS.Redis)) ? SERVICE_URLS.Redis : undefined;
const NEEDS = { 'pg-boss': ['PostgreSQL', postgres], bullmq: ['Redis', redis] };

/** Which replay stores an engine is run with; where there is no server, an embedded database serves. */
function replaysOf(engine) {
  if (values.replay !== undefined) return values.replay.split(',');
  const store = postgres === undefined ? 'pglite' : 'postgres';
  if (engine === 'bullmq') return ['redis', 'none'];
  return engine === 'pg-boss'
    ? [store, ...(redis === undefined ? [] : ['redis']), 'none']
    : [store];
}

const rows = [];
for (const engine of engines) {
  const [service, url] = NEEDS[engine] ?? [];
  if (service !== undefined && url === undefined) {
    console.error(`Skipped ${engine}: no ${service} at ${new URL(SERVICE_URLS[service]).host}.`);
    continue;
  }
  for (const replay of replaysOf(engine)) {
    const options = { engine, replay, seed, seconds, thorough: !values.quick, postgres, redis };
    rows.push(await new Conductor(options).run());
  }
}
console.log(values.json ? JSON.stringify(rows) : toMarkdown(rows));
process.exit(rows.every(keepsItsPromise) ? 0 : 1);
