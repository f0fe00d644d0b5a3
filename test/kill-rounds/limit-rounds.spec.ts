import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import { describeWith } from '../fixtures/services.js';

jest.setTimeout(300_000);

const SCRIPT = join(import.meta.dirname, 'limit-rounds.mjs');
const CONCURRENCY = 3;

interface Result {
  readonly requests: number;
  readonly lost: number;
  readonly mostAtOnce: number;
  readonly windows: readonly { readonly most: number; readonly allowed: number }[];
}

describe.each([
  ['bullmq', await describeWith('Redis')],
  ['postgres', await describeWith('PostgreSQL')],
] as const)(
  'four processes on %s, one of which is killed every second',
  (engine, describeEngine) => {
    describeEngine('for six seconds', () => {
      it('hold the limits of an endpoint together, and lose nothing', async () => {
        const args = ['--engine', engine, '--kills', '6', '--count', '300'];
        const { stdout } = await promisify(execFile)(process.execPath, [
          '--no-warnings',
          SCRIPT,
          ...args,
          '--concurrency',
          String(CONCURRENCY),
        ]);
        const { requests, lost, mostAtOnce, windows } = JSON.parse(stdout) as Result;

        expect(lost).toBe(0);
        expect(requests).toBeGreaterThanOrEqual(300);
        expect(mostAtOnce).toBeLessThanOrEqual(CONCURRENCY);
        for (const { most, allowed } of windows) expect(most).toBeLessThanOrEqual(allowed);
      });
    });
  },
);
