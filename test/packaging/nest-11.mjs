// Runs the suites of what the library uses of Nest on Nest 11; the repository itself uses Nest 12. Needs the npm registry,
// so it is not part of `npm test`.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

// Everything else is copied, including dist: some suites start the built package in child processes.
const NOT_COPIED = new Set(['node_modules', 'build', 'coverage', '.git']);
const NEST_11 = [
  ...['core', 'common', 'platform-express', 'platform-fastify', 'testing'].map(
    (name) => `@nestjs/${name}@11`,
  ),
  '@nestjs/axios@4',
  '@nestjs/swagger@11',
];

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const workshop = mkdtempSync(join(tmpdir(), 'webhook-token-nest-11-'));
cpSync(root, workshop, {
  recursive: true,
  filter: (path) => path === root || !NOT_COPIED.has(basename(path)),
});
const npm = (...args) =>
  execFileSync('npm', [...args, '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: workshop,
    stdio: ['ignore', 'ignore', 'inherit'],
  });

npm('ci');
// --legacy-peer-deps: some development tools require Nest 12, but the suites do not use them.
npm('install', '--legacy-peer-deps', '--save-dev', ...NEST_11);
const { status } = spawnSync(
  'node',
  [
    '--no-warnings',
    '--experimental-vm-modules',
    'node_modules/jest/bin/jest.js',
    '--selectProjects',
    'unit',
    'e2e',
    '--watchman=false',
    'test/e2e',
    'test/publisher',
    'test/deliveries',
    'test/receiver',
  ],
  { cwd: workshop, stdio: 'inherit' },
);
rmSync(workshop, { recursive: true, force: true });
process.exitCode = status ?? 1;
