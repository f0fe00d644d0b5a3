import type { Config } from 'jest';

const config: Config = {
  rootDir: '.',
  testEnvironment: 'node',
  // A bound on what hangs, wide enough for a machine that is busy: nothing measures time by it.
  testTimeout: 60_000,
  globalTeardown: '<rootDir>/test/fixtures/left-open.ts',
  testMatch: ['<rootDir>/test/**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: {
    '^nestjs-webhook-token$': '<rootDir>/lib/index.ts',
    '^nestjs-webhook-token/(token|bullmq|postgres|redis|testing)$': '<rootDir>/lib/$1/index.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
  transform: { '^.+\\.ts$': ['ts-jest', { useESM: true, tsconfig: 'tsconfig.json' }] },
  modulePathIgnorePatterns: ['<rootDir>/dist/'],
  coverageProvider: 'v8',
  collectCoverageFrom: ['lib/**/*.ts'],
};

export default config;
