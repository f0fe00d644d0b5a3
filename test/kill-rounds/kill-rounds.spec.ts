import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import { describeWith } from '../fixtures/services.js';

jest.setTimeout(600_000);

const SCRIPT = join(import.meta.dirname, 'run.mjs');
const ROUNDS = 5;

interface Row {
  readonly kills: number;
  readonly acknowledged: number;
  readonly lost: readonly string[];
  /** Attempts of deliveries with an ordering key, and those among them that started out of order. */
  readonly ordered: number;
  readonly inversions: number;
}

async function killRounds(engine: string): Promise<Row> {
  const args = [SCRIPT, '--json', '--rounds', String(ROUNDS), '--engine', engine];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const [row] = JSON.parse(stdout) as [Row];
  return row;
}

describe.each([
  ['bullmq', await describeWith('Redis')],
  ['postgres', await describeWith('PostgreSQL')],
  ['pglite', describe],
] as const)('a publisher on %s that is killed', (engine, describeEngine) => {
  describeEngine(`${ROUNDS} times`, () => {
    it('delivers every acknowledged event, and those with a key in order', async () => {
      const { acknowledged, lost, ordered, inversions } = await killRounds(engine);

      expect(acknowledged).toBeGreaterThan(ROUNDS * 20);
      expect(lost).toEqual([]);
      expect(ordered).toBeGreaterThan(ROUNDS * 10);
      expect(inversions).toBe(0);
    });
  });
});

it('a publisher with a queue in memory loses pending events when it is killed', async () => {
  const { acknowledged, lost } = await killRounds('memory');

  expect(acknowledged).toBeGreaterThan(ROUNDS * 20);
  expect(lost.length).toBeGreaterThan(0);
});
