import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import { describeWith, urlOf } from '../fixtures/services.js';

const PROCESS = fileURLToPath(new URL('queue-process.mjs', import.meta.url));
const ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 5);
const EACH = 200;

const name = `webhooks-${randomBytes(6).toString('hex')}`;
afterAll(async () => {
  const queue = new Queue(name, { connection: { url: urlOf('Redis') } });
  await queue.obliterate({ force: true });
  await queue.close();
});

/** Runs a process until `done` says so of its output, then kills it without a chance to clean up. */
async function runUntil(
  args: readonly string[],
  done: (word: string, id: string) => boolean,
): Promise<void> {
  const child = spawn('node', [PROCESS, urlOf('Redis'), name, ...args], {
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

(await describeWith('Redis'))('a publisher on BullMQ that is killed', () => {
  it(
    `loses nothing it has acknowledged, over ${ROUNDS} kills`,
    async () => {
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
        await runUntil([String(round * EACH), String(EACH)], (word, id) => {
          note(word, id);
          return ++lines >= last;
        });
      }
      const attempted = acknowledged.size;
      const outstanding = (): string[] => [...acknowledged].filter((id) => !delivered.has(id));
      await runUntil(['0', '0'], (word, id) => {
        note(word, id);
        return outstanding().length === 0;
      });

      expect(attempted).toBeGreaterThan(ROUNDS * 20);
      expect(outstanding()).toEqual([]);
    },
    30_000 + ROUNDS * 5_000,
  );
});
