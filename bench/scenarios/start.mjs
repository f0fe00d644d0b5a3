import { execFileSync, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { median } from '../deliveries.mjs';
import { report } from '../harness.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const ENTRIES = {
  '@nestjs/common and @nestjs/core': '@nestjs/core',
  'nestjs-webhook-token': './dist/index.js',
  'nestjs-webhook-token/token': './dist/token/index.js',
  'no import at all': 'node:process',
};
/** Applications on Express that listen; the first one has no webhooks. */
const APPLICATIONS = ['nest', 'receiver', 'publisher'];
const ROUNDS = { full: 21, quick: 7 };

/** CPU time to start a process and import an entry point or start an application, and the size of the packed package. The core of Nest imports the rest. */
export async function run({ quick = false }) {
  const runs = Object.keys(ENTRIES).map((name) => ({ name, pairs: [] }));
  for (let round = 0; round < ROUNDS[quick ? 'quick' : 'full']; round++) {
    const spent = new Map();
    for (const { name } of round % 2 === 0 ? runs : runs.toReversed()) {
      spent.set(name, cpuOfImport(ENTRIES[name]));
    }
    const base = spent.get(runs[0].name);
    for (const run of runs)
      run.pairs.push({ own: spent.get(run.name), ratio: base / spent.get(run.name) });
  }
  const imports = report('import, process start included', runs[0].name, runs);
  const own = (name) => imports.rows.find((row) => row.name === name).microseconds / 1_000;
  const start = own('no import at all');
  const nest = own('@nestjs/common and @nestjs/core');
  const rows = [
    {
      name: 'root entry, share of the import of Nest',
      value: (own('nestjs-webhook-token') - nest) / (nest - start),
    },
    { name: 'token entry, ms of CPU', value: own('nestjs-webhook-token/token') - start },
    ...applications(ROUNDS[quick ? 'quick' : 'full']),
    ...footprint(),
  ];
  console.log('\nstart and footprint');
  for (const { name, value } of rows) console.log(`  ${name.padEnd(40)} ${value.toFixed(2)}`);
  return [imports, { title: 'start and footprint', rows }];
}

/** CPU time of a process that imports this entry point, in microseconds. */
function cpuOfImport(entry) {
  const script = `await import(${JSON.stringify(entry)}); const { user, system } = process.cpuUsage(); console.log(user + system)`;
  return Number(outputOf('--input-type=module', '-e', script));
}

/** CPU time until an application listens, over the same application without webhooks, in milliseconds. */
function applications(rounds) {
  const over = { receiver: [], publisher: [] };
  for (let round = 0; round < rounds; round++) {
    const spent = new Map();
    for (const kind of round % 2 === 0 ? APPLICATIONS : APPLICATIONS.toReversed()) {
      spent.set(kind, Number(outputOf('bench/start/app.mjs', kind)));
    }
    for (const kind of Object.keys(over)) over[kind].push(spent.get(kind) - spent.get('nest'));
  }
  return Object.entries(over).map(([kind, values]) => ({
    name: `a ${kind}, CPU over Nest alone, ms`,
    value: median(values),
  }));
}

function outputOf(...args) {
  return spawnSync(process.execPath, args, { cwd: ROOT }).stdout;
}

function footprint() {
  const packed = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [{ unpackedSize }] = JSON.parse(packed);
  const manifest = JSON.parse(execFileSync('npm', ['pkg', 'get', 'dependencies'], { cwd: ROOT }));
  return [
    { name: 'unpacked size, kB', value: unpackedSize / 1_000 },
    { name: 'dependencies', value: Object.keys(manifest).length },
  ];
}
