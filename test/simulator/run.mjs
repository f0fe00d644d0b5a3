/**
 * Runs the library's own publishers, receivers and queues in one process on virtual time, while a simulated world fails:
 * `npm run simulate -- [--seeds n] [--seed first] [--planted] [--sql] [--json]`.
 *
 * A seed repeats its run exactly; a single one prints its trace. A seed that violates an invariant is shrunk, and its trace is printed. With `--planted`, a
 * fault is planted in each run of seeds, which must be found. With `--sql`, the statements are run on PostgreSQL too, and must have the same rows as in the
 * model. The exit code is 1 if an invariant was violated or a planted
 * fault was not found.
 */
import { parseArgs } from 'node:util';
import { shrink } from '../../build/lib/testing/simulation/shrink.js';
import { mix } from '../../build/lib/testing/simulation/simulation.js';
import { PLANTED_FAULTS } from './planted-faults.mjs';
import { simulate } from './scenario.mjs';
import { SqlComparison, StatementLog } from './sql-comparison.mjs';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string' },
    seed: { type: 'string', default: '1' },
    planted: { type: 'boolean', default: false },
    sql: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const first = Number(values.seed);
const count = Number(values.seeds ?? (values.planted ? 2_000 : 1_000));
if (![first, count].every((value) => Number.isSafeInteger(value) && value > 0)) {
  console.error('Usage: --seeds a number; --seed the first one; --planted; --sql; --json');
  process.exit(2);
}

/** Faults that a person can follow, and seeds that are shrunk to find so few. */
const FEW = 10;
const TRIES = 3;

/** Planted faults in which the model answers otherwise than SQL. */
const WRONG_MODELS = [
  'an outcome of an expired claim is recorded',
  'a claim does not see the locks of others',
  'the claim of a crashed process never ends',
  'a limit is not shared',
  'the slot of a crashed process is never free',
  'a start takes no token',
  'an endpoint that resumes starts another burst',
  'a delivery does not wait for its turn',
  'a delivery that ended does not release its key',
  'a repeated event is recorded again',
  'a redelivery counts as an attempt',
];

const report = values.sql
  ? await compareWithSql()
  : values.planted
    ? await findPlanted()
    : await runSeeds();
if (values.json) console.log(JSON.stringify(report));
process.exitCode = report.violations?.length > 0 || report.missed?.length > 0 ? 1 : 0;

async function runSeeds() {
  const totals = { seeds: 0, steps: 0, faults: 0, digest: 0, violations: [] };
  for (let seed = first; seed < first + count; seed++) {
    const result = await simulate(seed, { traced: count === 1 });
    totals.seeds++;
    totals.steps += result.steps;
    totals.digest = mix(String(result.digest), totals.digest);
    totals.faults += result.faults.length;
    if (count === 1) say(result.trace.join('\n'));
    if (result.violation === undefined) continue;
    totals.violations.push({ seed, violation: result.violation.message });
    if (totals.violations.length === 1) await print(result);
    else say(`Seed ${seed}: ${result.violation.message}`);
  }
  const { seeds, steps, faults, violations } = totals;
  say(`${seeds} seeds, ${steps} steps, ${faults} faults: ${violations.length} violations`);
  return totals;
}

/** Runs the statements of each seed on PostgreSQL too. With `--planted`, on models that answer wrongly, which must be found. */
async function compareWithSql() {
  const comparison = await SqlComparison.open();
  try {
    if (!values.planted) {
      const { statements, differences } = await compareSeeds(comparison);
      say(`${count} seeds, ${statements} statements on PostgreSQL: ${differences.length} differ`);
      return { seeds: count, statements, violations: differences };
    }
    const found = {};
    for (const name of WRONG_MODELS) {
      const { differences } = await compareSeeds(comparison, PLANTED_FAULTS[name], 1);
      if (differences.length === 0) say(`NOT FOUND within ${count} seeds: ${name}`);
      else found[name] = differences[0];
    }
    return { found, missed: WRONG_MODELS.filter((name) => found[name] === undefined) };
  } finally {
    await comparison.close();
  }
}

async function compareSeeds(comparison, plant, enough = Infinity) {
  let statements = 0;
  const differences = [];
  for (let seed = first; seed < first + count && differences.length < enough; seed++) {
    const log = new StatementLog();
    await simulate(seed, { plant, log });
    statements += log.entries.length;
    const difference = await comparison.differenceIn(log);
    if (difference === undefined) continue;
    differences.push({ seed, difference });
    say(`Seed ${seed}: ${difference}`);
  }
  return { statements, differences };
}

async function findPlanted() {
  const found = {};
  const missed = [];
  for (const [name, plant] of Object.entries(PLANTED_FAULTS)) {
    const { failed, short } = (await findOne(plant)) ?? {};
    if (failed === undefined) {
      missed.push(name);
      say(`NOT FOUND within ${count} seeds: ${name}`);
      continue;
    }
    const shrunk = `${failed.faults.length} faults shrunk to ${short.faults.length}`;
    found[name] = { seed: failed.seed, faults: short.faults.length, trace: short.trace.length };
    say(`${name}\n  seed ${failed.seed}, ${shrunk}: ${short.violation.message}`);
  }
  return { found, missed };
}

/** Shrinks the first seed that fails, or of the first ones the shortest, if they need many faults. */
async function findOne(plant) {
  let best;
  let tried = 0;
  for (let seed = first; seed < first + count; seed++) {
    const failed = await simulate(seed, { plant });
    if (failed.violation === undefined) continue;
    const short = await shrinkSeed(failed, plant);
    if (best === undefined || short.faults.length < best.short.faults.length)
      best = { failed, short };
    if (best.short.faults.length < FEW || ++tried === TRIES) return best;
  }
  return best;
}

function shrinkSeed(failed, plant) {
  return shrink(failed, (reduction) => simulate(failed.seed, { plant, ...reduction }));
}

async function print(failed) {
  const { seed, faults, trace, violation } = await shrinkSeed(failed);
  say(`Seed ${seed}: ${violation.message}`);
  say(`Its ${failed.faults.length} faults were shrunk to ${faults.length}:\n`);
  say(`${trace.join('\n')}\n`);
}

function say(text) {
  if (!values.json) console.log(text);
}
