/**
 * Type checks are left to `npm run check`: here they took 2.7 of the 3.5 CPU seconds before the first test. `npm test` sets
 * `--max-semi-space-size`: with V8's default, garbage collection took a sixth of the time, because every file loads its own modules.
 *
 * @jest-config-loader-options {"transpileOnly":true,"compilerOptions":{"module":"CommonJS","moduleResolution":"bundler"}}
 */
import { availableParallelism } from 'node:os';
import type { Config } from 'jest';

type Project = Exclude<NonNullable<Config['projects']>[number], string>;

/** Folders and files below `test/` by project. What is in none of them is a unit test. */
const E2E = ['e2e', 'cli', 'schematics'];
const ENGINES = ['bullmq', 'postgres', 'redis'];
const PROOFS = ['chaos', 'kill-rounds', 'clusters', 'fuzz', 'samples', 'simulator'];
/** Tests of an application that installs the package: test/packaging/run.mjs runs them. */
const PACKED = ['packaging'];
/** A proof beside the tests of its folder: `*.proof.spec.ts`. */
const PROOF_FILES = '/test/.+\\.proof\\.spec\\.ts$';

const shared: Project = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: {
    '^nestjs-webhook-token$': '<rootDir>/lib/index.ts',
    '^nestjs-webhook-token/(\\w+)$': '<rootDir>/lib/$1/index.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
  transform: { '^.+\\.ts$': ['ts-jest', { useESM: true, tsconfig: 'tsconfig.json' }] },
  modulePathIgnorePatterns: ['<rootDir>/dist/'],
};

const below = (folders: readonly string[]): string[] =>
  folders.map((folder) => `<rootDir>/test/${folder}/**/*.spec.ts`);
const ignored = (folders: readonly string[]): string[] =>
  folders.map((folder) => `/test/${folder}/`);

const config: Config = {
  rootDir: '.',
  // Ends a test that hangs; wide enough for a busy machine, because no test measures time. A test sets a limit only if it runs
  // for minutes.
  testTimeout: 180_000,
  // A test waits more than it computes: on two cores, three files at once took 264 s, and two 362 s.
  maxWorkers: Math.ceil(1.5 * availableParallelism()),
  // The modules of a file stay in memory after it, and a large heap slows down the files that follow: without this limit, a first
  // run took 825 s instead of 468 s, and a repeated one 511 s instead of 442 s.
  workerIdleMemoryLimit: '700MB',
  // At its end a worker holds up to 2 GB, which takes longer to free than the 500 ms after which Jest reports a leak.
  workerGracefulExitTimeout: 15_000,
  testSequencer: '<rootDir>/test/fixtures/longest-first.mjs',
  globalTeardown: '<rootDir>/test/fixtures/left-open.ts',
  coverageProvider: 'v8',
  // The page of the console runs in a browser: test/console/page.proof.spec.ts.
  collectCoverageFrom: ['lib/**/*.ts', '!lib/console/page/**'],
  projects: [
    {
      ...shared,
      displayName: 'unit',
      testMatch: ['<rootDir>/test/**/*.spec.ts'],
      testPathIgnorePatterns: [...ignored([...E2E, ...ENGINES, ...PROOFS, ...PACKED]), PROOF_FILES],
    },
    {
      ...shared,
      displayName: 'e2e',
      testMatch: below(E2E),
      testPathIgnorePatterns: [PROOF_FILES],
      globalSetup: '<rootDir>/test/fixtures/compiled-library.mjs',
    },
    {
      ...shared,
      displayName: 'engines',
      testMatch: below(ENGINES),
      testPathIgnorePatterns: [PROOF_FILES],
      globalSetup: '<rootDir>/test/fixtures/compiled-library.mjs',
    },
    {
      ...shared,
      displayName: 'proofs',
      testMatch: [
        ...below(PROOFS),
        '<rootDir>/test/**/*.proof.spec.ts',
        '<rootDir>/sample/**/*.spec.ts',
      ],
      globalSetup: '<rootDir>/test/fixtures/compiled-samples.mjs',
    },
  ],
};

export default config;
