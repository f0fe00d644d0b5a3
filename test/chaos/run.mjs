/**
 * Kills publishers and receivers, drops answers and fails handlers, then counts lost and duplicated events:
 * `node test/chaos/run.mjs [--seconds n] [--seed n] [--engine name,…] [--json]`.
 *
 * Each row is a run of two publishers and two receivers (Express and Fastify) in separate processes. Every acknowledged event
 * must have had its effect exactly once, events with an ordering key in order, and one endpoint limits its attempts at once.
 * The in-memory queue and the receivers without a replay store are controls, without the first of these guarantees. The exit
 * code is 1 if a row violates its guarantee.
 */
import { parseArgs } from 'node:util';
import { ENGINES } from '../fixtures/durable-queues.mjs';
import { answers, SERVICE_URLS } from '../fixtures/service-urls.mjs';
import { Conductor } from './conductor.mjs';
import { meetsGuarantee, toMarkdown } from './table.mjs';

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
  console.error(
    `--engine must be a list of ${ENGINES.join(', ')}, --seconds a positive number, --seed an integer`,
  );
  process.exit(2);
}

const postgres = (await answers(SERVICE_URLS.PostgreSQL)) ? SERVICE_URLS.PostgreSQL : undefined;
const redis = (await answers(SERVICE_URLS.Redis)) ? SERVICE_URLS.Redis : undefined;
const NEEDS = { postgres: ['PostgreSQL', postgres], bullmq: ['Redis', redis] };

/** The replay stores to run an engine with; without a PostgreSQL server, an embedded database. */
function replaysOf(engine) {
  if (values.replay !== undefined) return values.replay.split(',');
  const store = postgres === undefined ? 'pglite' : 'postgres';
  if (engine === 'bullmq') return ['redis', 'none'];
  return engine === 'postgres'
    ? [store, ...(redis === undefined ? [] : ['redis']), 'none']
    : [store];
}

const rows = [];
for (const engine of engines) {
  const [service, url] = NEEDS[engine] ?? [];
  if (service !== undefined && url === undefined) {
    console.error(
      `Skipped ${engine}: ${service} does not answer at ${new URL(SERVICE_URLS[service]).host}.`,
    );
    continue;
  }
  for (const replay of replaysOf(engine)) {
    const options = { engine, replay, seed, seconds, thorough: !values.quick, postgres, redis };
    rows.push(await new Conductor(options).run());
  }
}
console.log(values.json ? JSON.stringify(rows) : toMarkdown(rows));
process.exit(rows.every(meetsGuarantee) ? 0 : 1);
