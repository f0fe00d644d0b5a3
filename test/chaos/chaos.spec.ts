import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import { describeWith } from '../fixtures/services.js';

jest.setTimeout(600_000);

const SCRIPT = join(import.meta.dirname, 'run.mjs');

interface Row {
  readonly published: number;
  readonly kills: number;
  readonly answersLost: number;
  readonly handlerFailures: number;
  readonly lost: number;
  readonly keys: number;
  readonly outOfOrder: number;
  readonly mostAtOnce: number;
  readonly ranTwice: number;
  readonly doubled: number;
}

/** A short run with a few kills on each side. */
async function chaos(
  engine: string,
  replay: string,
  { env = {}, seconds = 7 }: { readonly env?: NodeJS.ProcessEnv; readonly seconds?: number } = {},
): Promise<Row> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      SCRIPT,
      '--quick',
      '--json',
      '--seconds',
      String(seconds),
      '--engine',
      engine,
      '--replay',
      replay,
    ],
    { env: { ...process.env, ...env } },
  );
  const [row] = JSON.parse(stdout) as [Row];
  return row;
}

/** Attempts at once that the limited endpoint allows. */
const CONCURRENCY = 2;

/** Asserts that the run had faults of each kind, and events of several keys, which all arrived in order. */
function expectFaults(row: Row): void {
  expect(row.published).toBeGreaterThan(20);
  expect(row.keys).toBeGreaterThan(3);
  expect(row.outOfOrder).toBe(0);
  for (const failure of ['kills', 'answersLost', 'handlerFailures'] as const) {
    expect([failure, row[failure]]).toEqual([failure, expect.any(Number)]);
    expect([failure, row[failure] > 0]).toEqual([failure, true]);
  }
}

(await describeWith('PostgreSQL'))('killed senders and receivers on PostgreSQL', () => {
  it('lose no event, and duplicate no effect that is committed together with the event', async () => {
    const row = await chaos('postgres', 'postgres');

    expectFaults(row);
    expect([row.lost, row.ranTwice, row.doubled]).toEqual([0, 0, 0]);
    expect(row.mostAtOnce).toBeLessThanOrEqual(CONCURRENCY);
  });
});

(await describeWith('Redis'))('killed senders and receivers on Redis', () => {
  it('lose no event, and handle no acknowledged event again', async () => {
    const row = await chaos('bullmq', 'redis');

    expectFaults(row);
    expect([row.lost, row.doubled]).toEqual([0, 0]);
    expect(row.mostAtOnce).toBeLessThanOrEqual(CONCURRENCY);
  });
});

describe('killed senders and receivers without a server', () => {
  const noServer = {
    POSTGRES_URL: 'postgresql://postgres@127.0.0.1:1/none',
    REDIS_URL: 'redis://127.0.0.1:1',
  };

  it('lose no event on PGlite, and handle no acknowledged event again', async () => {
    const row = await chaos('pglite', 'pglite', { env: noServer });

    expectFaults(row);
    expect([row.lost, row.doubled]).toEqual([0, 0]);
  });

  it('lose events of the in-memory queue, and duplicate effects without a replay store', async () => {
    // Some kills find nothing pending, so a short run may lose nothing.
    const row = await chaos('memory', 'none', { env: noServer, seconds: 30 });

    expectFaults(row);
    expect(row.lost).toBeGreaterThan(0);
    expect(row.doubled).toBeGreaterThan(0);
  });
});
