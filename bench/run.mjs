// npm run bench [-- SCENARIO...] [--only TEXT] [--quick] [--check] [--json FILE]
import { readdirSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { checkGoals } from './goals.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    /** Runs only comparisons whose title contains this string. */
    only: { type: 'string' },
    quick: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    json: { type: 'string' },
  },
});
const known = readdirSync(new URL('scenarios', import.meta.url)).map((file) =>
  file.replace('.mjs', ''),
);
const chosen = positionals.length === 0 ? known : positionals;
const unknown = chosen.filter((name) => !known.includes(name));
if (unknown.length > 0) {
  console.error(`Unknown scenario ${unknown.join(', ')}; choose from ${known.join(', ')}.`);
  process.exit(2);
}
const machine = `${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores, Node ${process.version}`;
console.log(`${machine}${values.quick ? ', quick run: approximate results' : ''}`);
const results = {};
for (const name of chosen) {
  const { run } = await import(`./scenarios/${name}.mjs`);
  results[name] = await run({ quick: values.quick, only: values.only });
}
if (values.json !== undefined) {
  const report = { machine, date: new Date().toISOString(), results };
  writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
}
const missed = values.check ? checkGoals(Object.values(results).flat()) : 0;
// Deliveries that hang on purpose (scenario `waiting`) would keep the process alive.
process.exit(missed > 0 ? 1 : 0);
