// Packs the package and installs the tarball like a user: with CommonJS and ESM, Nest 11 and Nest 12, Express and
// Fastify, and in plain Node. Needs the npm registry, so it is not part of `npm test`.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { createTokenSigner, digest } from 'nestjs-webhook-token/token';
import { optionalTypesOf } from './declarations.mjs';
import { checkStatedFootprint, footprintOf } from './footprint.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const SECRET = 'a-shared-secret-of-32-bytes-or-more';
const workshop = mkdtempSync(join(tmpdir(), 'webhook-token-packaging-'));
const npm = (cwd, ...args) =>
  execFileSync('npm', args, { cwd, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' });

let passed = 0;
let failed = 0;
async function check(name, body) {
  try {
    await body();
    passed++;
    console.log(`ok   ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAIL ${name}\n     ${error instanceof Error ? error.message : error}`);
  }
}
function expectEqual(actual, expected, subject) {
  if (actual !== expected) throw new Error(`${subject}: expected ${expected}, got ${actual}`);
}

const tarball = join(
  workshop,
  npm(root, 'pack', '--silent', '--pack-destination', workshop).trim(),
);

function install(app) {
  const folder = join(workshop, app);
  cpSync(join(here, 'apps', app), folder, { recursive: true });
  npm(folder, 'install', '--no-audit', '--no-fund', '--loglevel=error', tarball);
  return folder;
}

async function runApp(app) {
  const folder = install(app);
  // The declarations do not need it; TypeScript 6 cannot turn it off.
  const flags = app.startsWith('nest11') ? ['--esModuleInterop', 'false'] : [];
  execFileSync('npx', ['tsc', '-p', '.', ...flags], {
    cwd: folder,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  const sunk = [];
  const sink = createServer((request, response) => {
    sunk.push(request.method);
    response.writeHead(204).end();
  });
  await once(sink.listen(0, '127.0.0.1'), 'listening');
  const child = spawn('node', ['dist/main.js'], {
    cwd: folder,
    env: {
      ...process.env,
      // The console of these applications has no guard.
      NODE_ENV: 'development',
      PORT: '0',
      SHOP_SECRET: SECRET,
      SINK: `http://127.0.0.1:${sink.address().port}/in`,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout });
  const seen = [];
  const line = (pattern) =>
    new Promise((resolve, reject) => {
      const found = seen.find((text) => pattern.test(text));
      if (found !== undefined) return resolve(found);
      lines.on('line', (text) => pattern.test(text) && resolve(text));
      child.on('exit', (code) =>
        reject(new Error(`The application exited with ${code}:\n${seen.join('\n')}`)),
      );
    });
  lines.on('line', (text) => seen.push(text));
  try {
    const origin = (await line(/^listening /)).split(' ')[1];
    const signer = createTokenSigner({ issuer: 'https://shop.example', key: SECRET });
    const head = signer.sign({ event: 'order.created', data: { id: 'o1', total: 1 } });
    const answer = await fetch(`${origin}/webhooks`, {
      method: 'HEAD',
      headers: { authorization: `Bearer ${head}` },
    });
    expectEqual(answer.status, 204, 'HEAD');
    await line(/^handled order\.created o1 true$/);
    const body = '{"id":"o2","total":2}';
    const token = signer.sign({
      event: 'order.created',
      hash: digest('sha256', Buffer.from(body)),
    });
    const post = async (sent) =>
      fetch(`${origin}/webhooks`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: sent,
      });
    expectEqual((await post('{"id":"o2","total":3}')).status, 400, 'tampered POST');
    expectEqual((await post(body)).status, 204, 'POST');
    await line(/^handled order\.created o2 true$/);
    await line(/^sent delivered$/);
    expectEqual(sunk.join(), 'HEAD', 'methods of the published requests');
    await expectConsole(`${origin}/webhooks/console`);
  } finally {
    child.kill();
    sink.close();
  }
}

/** Loads the page of the console with its files, and finds in its API what the application has sent and refused. */
async function expectConsole(address) {
  const page = await fetch(address);
  const html = await page.text();
  expectEqual(page.url, `${address}/`, 'address of the page');
  const files = [...html.matchAll(/(?:src|href)="([^"]*assets\/[^"]+)"/g)].map(([, file]) => file);
  expectEqual(files.map((file) => file.split('.').at(-1)).join(), 'css,js', 'files');
  for (const file of files) {
    const { status, headers } = await fetch(new URL(file, page.url));
    const type = headers.get('content-type').split(';')[0];
    expectEqual(
      `${status} ${type}`,
      `200 text/${file.endsWith('.js') ? 'javascript' : 'css'}`,
      file,
    );
  }
  const api = async (path) => (await fetch(new URL(`api/${path}`, page.url))).json();
  expectEqual((await api('session')).brand.name, 'Orders', 'brand');
  const [sent] = (await api('deliveries')).items;
  expectEqual(`${sent.event} ${sent.status}`, 'invoice.paid delivered', 'delivery');
  const [refused] = (await api('inbox?kind=refused')).items;
  expectEqual(refused.code, 'hash_mismatch', 'why the tampered POST was refused');
}

for (const app of readdirSync(join(here, 'apps')).filter((name) => name.startsWith('nest'))) {
  await check(`${app}: installs, compiles, receives, publishes and shows the console`, () =>
    runApp(app),
  );
}

/** Reads the two entries that the guide adds to the Jest configuration of a Nest 11 project. */
function jestEntriesFromGuide() {
  const pages = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => readFileSync(join(root, 'docs', name), 'utf8'));
  const [, block] = pages
    .map((page) => /```jsonc?\n((?:(?!```)[^])*"transformIgnorePatterns"[^]*?)```/.exec(page))
    .find((match) => match !== null);
  const json = block.replaceAll(/\s\/\/.*$/gm, '').trim();
  return JSON.parse(json.startsWith('{') ? json : `{${json}}`);
}

/** Runs `nest new` of a version of Nest, adds the tarball as `nest add` does, and another handler with its test. */
function scaffold(version) {
  const folder = join(workshop, `nest-new-${version}`);
  const quiet = ['--no-audit', '--no-fund', '--loglevel=error'];
  const flags = ['--skip-install', '--skip-git', '--package-manager', 'npm'];
  npm(workshop, 'exec', '--yes', '--', `@nestjs/cli@${version}`, 'new', basename(folder), ...flags);
  for (const name of readdirSync(join(here, 'scaffold'))) {
    cpSync(join(here, 'scaffold', name), join(folder, 'src', name));
  }
  npm(folder, 'install', ...quiet, tarball);
  writeFileSync(join(folder, '.gitignore'), '/node_modules\n.env\n');
  // -s: the package is installed already; what the schematic adds is installed by its own task.
  npm(folder, 'exec', '--', 'nest', 'add', 'nestjs-webhook-token', '-s');
  return folder;
}

/** Runs the generated test and ours, starts the application in its own end-to-end test, and builds it, as in a fresh clone. */
function expectSound(folder) {
  rmSync(join(folder, '.env'));
  npm(folder, 'test');
  npm(folder, 'run', 'test:e2e');
  npm(folder, 'run', 'lint');
  npm(folder, 'run', 'build');
  expectEqual(existsSync(join(folder, 'dist/main.js')), true, 'dist/main.js');
}

await check(
  'nest new and nest add, Nest 11: the default Jest passes, and is set up as documented',
  () => {
    const folder = scaffold(11);
    // Nest 11 projects are CommonJS, with relative imports without an extension.
    const spec = join(folder, 'src/orders.webhooks.spec.ts');
    writeFileSync(spec, readFileSync(spec, 'utf8').replace('webhooks.js', 'webhooks'));
    const { jest } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    for (const [name, value] of Object.entries(jestEntriesFromGuide())) {
      expectEqual(JSON.stringify(jest[name]), JSON.stringify(value), name);
    }
    expectSound(folder);
    npm(folder, 'exec', '--', 'node', '--experimental-vm-modules', 'node_modules/jest/bin/jest.js');
  },
);

await check('nest new and nest add, Nest 12: the default Vitest passes', () => {
  expectSound(scaffold(12));
});

const plain = install('plain-node');
await check('plain node: require()', () => {
  const text = execFileSync('node', ['token.cjs'], { cwd: plain, encoding: 'utf8' });
  expectEqual(text.trim(), 'commonjs a.b 73', 'output');
});
await check('plain node: import', () => {
  const text = execFileSync('node', ['token.mjs'], { cwd: plain, encoding: 'utf8' });
  expectEqual(text.trim(), 'esm HS256 function function', 'output');
});
await check('plain node: the test vectors', () => {
  const script = "require('nestjs-webhook-token/vectors/times.json').direction";
  const text = execFileSync('node', ['-p', script], { cwd: plain, encoding: 'utf8' });
  expectEqual(text.trim(), 'receive', 'output');
});
await check('plain node: the command line', () => {
  const args = ['--no-install', 'nestjs-webhook-token', '--version'];
  const text = execFileSync('npx', args, { cwd: plain, encoding: 'utf8' });
  expectEqual(/^\d+\.\d+\.\d+/.test(text), true, 'output is a version');
});
/** The peer of its own whose types an entry point may need. */
const OWN_PEERS = { './bullmq': 'bullmq', './health': '@nestjs/terminus' };
const installed = join(plain, 'node_modules/nestjs-webhook-token');
const { exports } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
for (const [entry, { types }] of Object.entries(exports).filter(([, to]) => to.types)) {
  await check(`${entry} needs the types of no optional package but its own`, () => {
    const others = optionalTypesOf(installed, types).filter(
      (found) => !found.startsWith(`${OWN_PEERS[entry]} by `),
    );
    expectEqual(others.join(', '), '', 'optional types');
  });
}
await check('installed size and number of packages match README.md', () => {
  const folder = join(workshop, 'alone');
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), '{}');
  const quiet = ['--no-audit', '--no-fund', '--loglevel=error'];
  // Without the peer dependencies, which every Nest application already has.
  npm(folder, 'install', '--legacy-peer-deps', ...quiet, tarball);
  checkStatedFootprint(readFileSync(join(root, 'README.md'), 'utf8'), footprintOf(folder));
});

rmSync(workshop, { recursive: true, force: true });
console.log(`packaging: ${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
