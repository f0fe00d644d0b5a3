import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import { describeWith } from '../fixtures/services.js';

jest.setTimeout(1_200_000);

const SCRIPT = join(import.meta.dirname, 'run.mjs');
/** Those of a change; the weekly workflow runs 10,000. */
const SEEDS = 500;
/** Processes that share the seeds. */
const SHARDS = 2;
/** Megabytes. */
const MAX_HEAP = 192;

interface Run {
  readonly seeds: number;
  readonly faults: number;
  readonly digest: number;
  readonly violations: readonly string[];
}

interface Planted {
  readonly found: Readonly<Record<string, { readonly seed: number; readonly faults: number }>>;
  readonly missed: readonly string[];
}

async function simulate<Report>(...args: string[]): Promise<Report> {
  const heap = `--max-old-space-size=${MAX_HEAP}`;
  const all = [heap, '--no-warnings', SCRIPT, '--json', ...args];
  // The exit code is 1 if there are violations, which the report lists.
  const { stdout } = await promisify(execFile)(process.execPath, all, { maxBuffer: 2 ** 26 }).catch(
    (error: unknown) => error as { stdout: string },
  );
  return JSON.parse(stdout) as Report;
}

interface Comparison {
  readonly statements: number;
  readonly violations: readonly string[];
}

(await describeWith('PostgreSQL'))('the model of the database', () => {
  it('answers every statement of 50 seeds as PostgreSQL does', async () => {
    const { statements, violations } = await simulate<Comparison>('--sql', '--seeds', '50');

    expect(violations).toEqual([]);
    expect(statements).toBeGreaterThan(10_000);
  });

  it('differs from PostgreSQL where a fault is planted', async () => {
    const { missed } = await simulate<Planted>('--sql', '--planted', '--seeds', '100');

    expect(missed).toEqual([]);
  });
});

describe('the simulator', () => {
  it(`runs ${SEEDS} seeds within ${MAX_HEAP} MB without a violation`, async () => {
    const share = SEEDS / SHARDS;
    const runs = await Promise.all(
      Array.from({ length: SHARDS }, (_, shard) =>
        simulate<Run>('--seed', String(shard * share + 1), '--seeds', String(share)),
      ),
    );

    expect(runs.flatMap(({ violations }) => violations)).toEqual([]);
    expect(runs.map(({ seeds }) => seeds)).toEqual(Array(SHARDS).fill(share));
    for (const { faults } of runs) expect(faults).toBeGreaterThan(5 * share);
  });

  it('finds every planted fault, and shrinks the run that shows it', async () => {
    const { found, missed } = await simulate<Planted>('--planted');

    expect(missed).toEqual([]);
    expect(Object.keys(found).length).toBeGreaterThanOrEqual(12);
    for (const { faults } of Object.values(found)) expect(faults).toBeLessThan(15);
  });

  it('repeats a seed exactly', async () => {
    const [first, second] = await Promise.all([
      simulate<Run>('--seeds', '25'),
      simulate<Run>('--seeds', '25'),
    ]);

    expect(second).toEqual(first);
  });
});
