import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Queue } from 'bullmq';
import { Pool } from 'pg';
import { ScriptProcess } from '../fixtures/child-process.mjs';
import { describeWith, urlOf } from '../fixtures/services.js';
import { stateAfter } from '../simulator/delivery-model.mjs';

jest.setTimeout(600_000);

const ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 5);
const PROCESS = new URL('publisher.process.mjs', import.meta.url);
/** Events that each process sets out to publish; it is killed before it has delivered them all. */
const EACH = 80;

/** Ids of the events that the receiver has acknowledged. */
let seen: Set<string>;
let receiver: Server;
let place: { postgres: string; redis: string; name: string; directory: string };

beforeEach(async () => {
  seen = new Set();
  let requests = 0;
  receiver = createServer((request, response) => {
    request.resume().on('end', () => {
      const { number } = claimsOf(request.headers.authorization ?? '');
      // Every fifth request fails, so that retries are killed too and the circuit never opens.
      const fails = ++requests % 5 === 0;
      if (!fails) seen.add(number);
      response.writeHead(fails ? 503 : 204).end();
    });
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  place = {
    postgres: urlOf('PostgreSQL'),
    redis: urlOf('Redis'),
    name: `kill_${randomBytes(6).toString('hex')}`,
    directory: await mkdtemp(join(tmpdir(), 'webhooks-kill-')),
  };
});

afterEach(async () => {
  receiver.closeAllConnections();
  receiver.close();
  await rm(place.directory, { recursive: true, force: true });
});

function claimsOf(authorization: string): { number: string } {
  const [, payload = ''] = authorization.split('.');
  const { txn } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { txn: string };
  return { number: txn };
}

function start(engine: string, first: number, count: number, hear: Hear): ScriptProcess {
  const { port } = receiver.address() as AddressInfo;
  const settings = { engine, place, url: `http://127.0.0.1:${port}/hooks`, first, count };
  return new ScriptProcess(PROCESS, settings, hear);
}

type Hear = (word: string, ...rest: (string | undefined)[]) => void;

/** Kills a publisher after each of its rounds; resolves with the ids that it said it had published. */
async function killPublishers(engine: string): Promise<Set<string>> {
  const published = new Set<string>();
  for (let round = 0; round < ROUNDS; round++) {
    // At a different point each time.
    const last = 30 + ((round * 17) % 45);
    let lines = 0;
    const child = start(engine, round * EACH, EACH, (word, id) => {
      if (word !== 'published') return;
      published.add(id!);
      if (++lines === last) void child.kill();
    });
    await child.ended();
  }
  return published;
}

/** A delivery as its queue stores it. */
interface Stored {
  readonly status: string;
  readonly attemptsMade: number;
  /** Whether each attempt succeeded. */
  readonly attempts: readonly boolean[];
}

/** Lets one process deliver what is left; resolves with the stored deliveries by event once nothing is pending. */
async function finish(engine: string): Promise<Map<string, Stored>> {
  return new Promise((resolve) => {
    const ask = (): void => void setTimeout(() => child.send('deliveries'), 500);
    const child = start(engine, 0, 0, (word, pending, ...stored) => {
      if (word === 'ready') return ask();
      if (word !== 'deliveries') return undefined;
      if (pending !== '0') return ask();
      void child.kill().then(() => resolve(new Map(stored.map((entry) => readEntry(entry!)))));
    });
  });
}

function readEntry(entry: string): [string, Stored] {
  const [id, status, attemptsMade, results] = entry.split('=') as [string, string, string, string];
  const attempts = results.split(',').map((result) => result === 'succeeded');
  return [id, { status, attemptsMade: Number(attemptsMade), attempts }];
}

/** Removes the schemas and jobs of the processes. */
async function drop(engine: string): Promise<void> {
  if (engine === 'pglite') return;
  const pool = new Pool({ connectionString: place.postgres });
  await pool.query(`DROP SCHEMA IF EXISTS ${place.name} CASCADE`);
  await pool.end();
  if (engine !== 'bullmq') return;
  const jobs = new Queue(place.name, { connection: { url: place.redis } });
  await jobs.obliterate({ force: true });
  await jobs.close();
}

describe.each([
  ['bullmq', await describeWith('Redis')],
  ['postgres', await describeWith('PostgreSQL')],
  ['pglite', describe],
] as const)('the stored deliveries of a publisher on %s', (engine, describeEngine) => {
  describeEngine(`that is killed ${ROUNDS} times`, () => {
    it('are delivered exactly if the receiver has acknowledged them, by the steps of the model', async () => {
      const published = await killPublishers(engine);
      const stored = await finish(engine);
      await drop(engine);

      expect(published.size).toBeGreaterThan(ROUNDS * 20);
      const delivered = [...stored].filter(([, { status }]) => status === 'delivered');
      expect(delivered.map(([id]) => id).toSorted()).toEqual([...seen].toSorted());
      expect([...published].filter((id) => !stored.has(id))).toEqual([]);
      expect(delivered).toHaveLength(stored.size);
      const untrue = [...stored].filter(
        ([, { status, attemptsMade, attempts }]) =>
          stateAfter(attempts) !== status || attempts.length !== attemptsMade,
      );
      expect(untrue).toEqual([]);
    });
  });
});
