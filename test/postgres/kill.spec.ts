import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from '@jest/globals';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

const PROCESS = fileURLToPath(new URL('queue-process.mjs', import.meta.url));
const ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 5);
const EACH = 200;

/** Runs a process until `done` says so of its output, then kills it without a chance to clean up. */
async function runUntil(
  args: readonly string[],
  done: (word: string, id: string) => boolean,
): Promise<void> {
  const child = spawn('node', ['--no-warnings', PROCESS, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const [word, id] = line.split(' ');
    if (done(word!, id!)) child.kill('SIGKILL');
  }
  if (child.signalCode === null && child.exitCode === null) {
    await new Promise((resolve) => child.once('exit', resolve));
  }
}

/** Kills a publisher again and again, then lets one finish what the others have left. */
async function killRounds(place: readonly string[]): Promise<void> {
  const acknowledged = new Set<string>();
  const delivered = new Map<string, number>();
  const note = (word: string, id: string): void => {
    if (word === 'acknowledged') acknowledged.add(id);
    if (word === 'delivered') delivered.set(id, (delivered.get(id) ?? 0) + 1);
  };
  for (let round = 0; round < ROUNDS; round++) {
    let lines = 0;
    // At another point of its work each time, and never when all of it is done.
    const last = 60 + ((round * 97) % 250);
    await runUntil([...place, String(round * EACH), String(EACH)], (word, id) => {
      note(word, id);
      return ++lines >= last;
    });
  }
  const outstanding = (): string[] => [...acknowledged].filter((id) => !delivered.has(id));
  await runUntil([...place, '0', '0'], (word, id) => {
    note(word, id);
    return outstanding().length === 0;
  });
  const twice = [...delivered.values()].filter((count) => count > 1).length;
  process.stdout.write(
    `${place[0]}: ${ROUNDS} kills, ${acknowledged.size} acknowledged, ${outstanding().length} lost, ${twice} twice\n`,
  );

  expect(acknowledged.size).toBeGreaterThan(ROUNDS * 20);
  expect(outstanding()).toEqual([]);
}

(await describeWith('PostgreSQL'))('a publisher on PostgreSQL that is killed', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it(
    `loses nothing it has acknowledged, over ${ROUNDS} kills`,
    async () => killRounds(['server', urlOf('PostgreSQL'), database.newSchema()]),
    60_000 + ROUNDS * 5_000,
  );
});

describe('a publisher on PGlite that is killed', () => {
  let directory: string;
  afterAll(async () => rm(directory, { recursive: true, force: true }));

  it(
    `loses nothing it has acknowledged, over ${ROUNDS} kills`,
    async () => {
      directory = await mkdtemp(join(tmpdir(), 'webhooks-'));
      await killRounds(['embedded', directory, '-']);
    },
    90_000 + ROUNDS * 10_000,
  );
});
