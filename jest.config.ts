import type { Config } from 'jest';

type Project = Exclude<NonNullable<Config['projects']>[number], string>;

/** Folders and files below `test/` by project. What is in none of them is a unit test. */
const E2E = ['e2e', 'cli'];
const ENGINES = ['bullmq', 'postgres', 'redis'];
const PROOFS = ['chaos', 'kill-rounds', 'fuzz', 'samples'];
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
  // Ends a test that hangs; wide enough for a busy machine, because no test measures time.
  testTimeout: 60_000,
  // A test waits more than it computes, so even two cores run two files at once.
  maxWorkers: '100%',
  globalTeardown: '<rootDir>/test/fixtures/left-open.ts',
  coverageProvider: 'v8',
  collectCoverageFrom: ['lib/**/*.ts'],
  projects: [
    {
      ...shared,
      displayName: 'unit',
      testMatch: ['<rootDir>/test/**/*.spec.ts'],
      testPathIgnorePatterns: [...ignored([...E2E, ...ENGINES, ...PROOFS]), PROOF_FILES],
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
      testMatch: [...below(PROOFS), '<rootDir>/test/**/*.proof.spec.ts'],
      globalSetup: '<rootDir>/test/fixtures/compiled-samples.mjs',
    },
  ],
};

export default config;
