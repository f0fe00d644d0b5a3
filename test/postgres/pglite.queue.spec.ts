import { spawn } from 'node:child_process';
import { existsSync, readlinkSync, statSync } from 'node:fs';
import {
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { TestClock, webhookQueueContract } from 'nestjs-webhook-token/testing';
import { DirectoryLock } from '../../lib/postgres/directory-lock.js';
import { PgliteQueue } from '../../lib/postgres/index.js';
import { describeContract } from '../fixtures/contract.js';
import { newDatabaseDirectory, newDirectory, removeDirectories } from './embedded-database.js';
import { until } from './database.js';
import { due } from './deliveries.js';

afterAll(removeDirectories);

describe('PgliteQueue', () => {
  // One database for all cases, each with a queue of its own: creating a database takes seconds.
  let directory: string;
  let keepsOpen: PgliteQueue;
  let queues = 0;
  beforeAll(async () => {
    directory = await newDatabaseDirectory();
    keepsOpen = new PgliteQueue({ directory });
    await keepsOpen.database();
  });
  afterAll(async () => keepsOpen.stop(0));

  const contract = webhookQueueContract({
    create: () => new PgliteQueue({ directory, name: `case-${queues++}` }),
    createDropping: (clock, keepPayloads) =>
      new PgliteQueue({ directory, name: `case-${queues++}`, clock, keepPayloads }),
    advance: (ms) => sleep(ms),
    expireLease: async (_, id) => {
      const database = await keepsOpen.database();
      await database.query('UPDATE webhooks.delivery SET leased_until = now() WHERE id = $1', [id]);
    },
  });
  describeContract(contract, 6);
});

describe('a transaction on the embedded database', () => {
  let queue: PgliteQueue;
  const delivered: string[] = [];
  beforeAll(async () => {
    // No poll happens during the test: the commit starts the attempt.
    queue = new PgliteQueue({ directory: await newDirectory(), pollInterval: '1h' });
    // The first call of the queue: a statement outside the transaction would wait for its end.
    const database = await queue.database();
    await database.exec('CREATE TABLE orders (id int)');
  });
  afterAll(async () => queue.stop(0));

  it('attempts deliveries that were committed, with the other changes of the transaction', async () => {
    const database = await queue.database();
    await queue.consume(async ({ id }) => {
      delivered.push(id);
      return { outcome: { type: 'delivered' } };
    });
    await database.transaction(async (tx) => {
      await tx.query('INSERT INTO orders VALUES (1)');
      expect(await queue.enqueue([due('committed')], { tx })).toEqual([undefined]);
    });
    await until(() => delivered.includes('committed'));

    expect((await database.query('SELECT * FROM orders')).rows).toEqual([{ id: 1 }]);
  });

  it('attempts no delivery that was rolled back', async () => {
    const database = await queue.database();
    await expect(
      database.transaction(async (tx) => {
        await queue.enqueue([due('undone')], { tx });
        throw new Error('the order is impossible');
      }),
    ).rejects.toThrow('impossible');

    expect(await queue.find(['undone'])).toEqual([undefined]);
  });

  it('cannot be the database itself, or a client of a server', async () => {
    const tx: unknown = await queue.database();
    await expect(queue.enqueue([due('x')], { tx })).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/no transaction is open/),
    });
    const client = {
      query: async () => ({ rows: [] }),
      connect: () => {},
      escapeLiteral: () => {},
    };
    await expect(queue.enqueue([due('x')], { tx: client })).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/a Transaction of PGlite/),
    });
  });
});

describe('a key on the embedded database', () => {
  it.each<[string, (queue: PgliteQueue) => Promise<number>]>([
    ['erased', async (queue) => queue.erase({ eventId: 'event-first' })],
    ['pruned', async (queue) => queue.prune(Date.now() + 60_000)],
  ])('continues at once after its first delivery was %s', async (_, remove) => {
    const queue = new PgliteQueue({ directory: await newDatabaseDirectory() });
    await queue.consume(async ({ id }) => ({
      outcome:
        id === 'first'
          ? { type: 'dead', reason: 'http_500', attempts: 1, blocksKey: true }
          : { type: 'defer', at: Date.now() + 60_000 },
    }));
    const keyed = (id: string) => {
      const { delivery, ...rest } = due(id);
      return { ...rest, delivery: { ...delivery, orderingKey: 'sku-1' } };
    };
    await queue.enqueue([keyed('first'), keyed('next')]);
    const keyState = async (id: string) => (await queue.find([id]))[0]?.keyState;
    await until(async () => (await keyState('first')) === 'blocking');
    expect(await keyState('next')).toBe('waiting');

    expect(await remove(queue)).toBe(1);
    expect(await keyState('next')).toBeUndefined();
    await queue.stop(0);
  });
});

describe('enqueue on the embedded database, one call after the other', () => {
  it('leaves time for other work of the process', async () => {
    const queue = new PgliteQueue({ directory: await newDatabaseDirectory() });
    await queue.database();
    const work: string[] = [];
    setImmediate(() => work.push('done'));
    for (let i = 0; i < 500 && work.length === 0; i++) await queue.enqueue([due(`${i}`)]);

    expect(work).toEqual(['done']);
    await queue.stop(0);
  });
});

describe('two queues of one process in one directory', () => {
  it('share the database, each with its own deliveries', async () => {
    const directory = await newDatabaseDirectory();
    const outgoing = new PgliteQueue({ directory });
    const incoming = new PgliteQueue({ directory, name: 'received' });
    const taken: string[] = [];
    const take =
      (queue: string) =>
      async ({ id }: { id: string }) => {
        taken.push(`${queue} ${id}`);
        return { outcome: { type: 'delivered' } } as const;
      };
    // The same id: they are two queues.
    await Promise.all([outgoing.enqueue([due('a')]), incoming.enqueue([due('a')])]);
    await outgoing.consume(take('outgoing'));
    await incoming.consume(take('incoming'));
    await until(() => taken.length === 2);
    expect(await outgoing.database()).toBe(await incoming.database());
    await outgoing.stop(Date.now() + 5_000);
    await expect(outgoing.database()).rejects.toMatchObject({ code: 'shutting_down' });
    await incoming.enqueue([due('b')]);
    await until(() => taken.length === 3);
    await incoming.stop(Date.now() + 5_000);

    expect(taken.toSorted()).toEqual(['incoming a', 'incoming b', 'outgoing a']);
    expect(await readdir(directory)).toEqual(['data']);
    const again = new PgliteQueue({ directory });
    expect(await again.find(['a'])).toMatchObject([{ status: 'delivered' }]);
    await again.stop(0);
  });

  it('cannot have the same name', async () => {
    const directory = await newDatabaseDirectory();
    const first = new PgliteQueue({ directory });
    await first.enqueue([due('kept')]);
    await expect(new PgliteQueue({ directory }).enqueue([due('x')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/named "webhook-deliveries".*give each its own name/),
    });

    expect(await first.find(['kept'])).toMatchObject([{ status: 'pending' }]);
    await first.stop(0);
  });
});

describe('the directory of an embedded database', () => {
  const namespace = '/proc/self/ns/pid';
  /** Where the process of a lock runs. */
  const here = {
    host: hostname(),
    pidNamespace: existsSync(namespace) ? readlinkSync(namespace) : null,
  };

  it('is refused to a second process, and released at the end', async () => {
    const directory = await newDirectory();
    const lock = await DirectoryLock.take(directory);
    const second = new PgliteQueue({ directory });
    await expect(second.enqueue([due('second')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/Another process uses .*PostgresQueue/),
    });
    await lock.release();

    await (await DirectoryLock.take(directory)).release();
    expect(await readdir(directory)).toEqual([]);
  });

  it('is refused while another process is alive, and taken over once it has died', async () => {
    const directory = await newDirectory();
    const other = spawn('sleep', ['60']);
    await new Promise((resolve) => other.once('spawn', resolve));
    const holder = { ...here, pid: other.pid, startedAt: null };
    await writeFile(join(directory, 'lock'), JSON.stringify(holder));

    await expect(DirectoryLock.take(directory)).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    other.kill('SIGKILL');
    await new Promise((resolve) => other.once('exit', resolve));
    await (await DirectoryLock.take(directory)).release();
  });

  it.each<[string, object, boolean]>([
    ['a process whose id this process has now', { pid: process.pid, startedAt: '1' }, true],
    ['another machine without a recent heartbeat', { host: 'elsewhere', pid: 1 }, true],
    ['another machine with a recent heartbeat', { host: 'elsewhere', pid: 1, lives: true }, false],
    ['another container of the same name', { pidNamespace: 'pid:[1]', pid: 1, lives: true }, false],
    ['a container that has died', { pidNamespace: 'pid:[1]', pid: 1 }, true],
    ['no one, because its lock file was truncated', { text: '{"ho' }, true],
  ])('held by %s', async (_, holder, isTakenOver) => {
    const directory = await newDirectory();
    const path = join(directory, 'lock');
    const { text, lives, ...rest } = holder as { text?: string; lives?: boolean };
    await writeFile(path, text ?? JSON.stringify({ ...here, startedAt: null, ...rest }));
    const then = new Date(Date.now() - (lives === true ? 0 : 31_000));
    await utimes(path, then, then);
    const lock = DirectoryLock.take(directory);

    if (isTakenOver) return (await lock).release();
    await expect(lock).rejects.toMatchObject({ code: 'store_unavailable' });
  });

  it('stays that of the process that took it over from a suspended one', async () => {
    const directory = await newDirectory();
    const path = join(directory, 'lock');
    const suspended = await DirectoryLock.take(directory);
    const other = JSON.stringify({ ...here, token: 'other', pid: process.pid, startedAt: null });
    await writeFile(path, other);
    await suspended.release();

    expect(await readFile(path, 'utf8')).toBe(other);
  });

  it.each<[string, number]>([
    ['a minute ahead', 60_000],
    ['that was set back', -60_000],
  ])(
    'is not used any more after another process took it over, by a clock %s',
    async (_, change) => {
      const directory = await newDatabaseDirectory();
      const path = join(directory, 'lock');
      const clock = new TestClock();
      const queue = new PgliteQueue({ directory, clock });
      await queue.enqueue([due('before')]);
      clock.set(clock.now() + change);
      await queue.enqueue([due('still its own')]);
      const own = await readFile(path, 'utf8');
      const other = JSON.stringify({ ...here, token: 'other', pid: process.pid, startedAt: null });
      await writeFile(path, other);
      clock.set(clock.now() + change);

      const refused = { code: 'store_unavailable', message: expect.stringMatching(/Restart this/) };
      await expect(queue.enqueue([due('lost')])).rejects.toMatchObject(refused);
      await expect(queue.database()).rejects.toMatchObject(refused);
      expect(await readFile(path, 'utf8')).toBe(other);

      // A database that is not closed would keep this process alive.
      await writeFile(path, own);
      await queue.stop(0);
    },
  );

  it('is not used any more once a heartbeat has found that it was deleted', async () => {
    const directory = await newDatabaseDirectory();
    const clock = new TestClock();
    const queue = new PgliteQueue({ directory, clock });
    const database = await queue.database();
    await rename(directory, `${directory}.gone`);
    await clock.advance(5_000);
    let refusal: unknown;
    await until(async () => {
      refusal = await queue.database().catch((error: unknown) => error);
      return refusal instanceof Error;
    });

    expect(refusal).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/was deleted while this process used it/),
    });
    // Otherwise it would keep this process alive.
    await rename(`${directory}.gone`, directory);
    await database.close();
    await queue.stop(0);
  });

  it('is left unchanged at the end of a queue from which another process took it over', async () => {
    const directory = await newDatabaseDirectory();
    const queue = new PgliteQueue({ directory });
    const database = await queue.database();
    const other = JSON.stringify({ ...here, token: 'other', pid: process.pid, startedAt: null });
    await writeFile(join(directory, 'lock'), other);
    await queue.stop(0);
    const wasClosed = database.closed;
    // Otherwise it would keep this process alive.
    await database.close();

    // PGlite writes to its directory when it closes.
    expect(wasClosed).toBe(false);
    expect(await readFile(join(directory, 'lock'), 'utf8')).toBe(other);
  });

  it('can be taken over after a process has died while it did so', async () => {
    const directory = await newDirectory();
    const dead = JSON.stringify({ ...here, pid: process.pid, startedAt: '1' });
    const takeover = join(directory, 'lock.takeover');
    await writeFile(join(directory, 'lock'), dead);
    await writeFile(takeover, dead);
    await (await DirectoryLock.take(directory)).release();

    expect(await readdir(directory)).toEqual([]);
  });

  it('never has an incomplete lock, which a crash would leave', async () => {
    const directory = await newDirectory();
    const path = join(directory, 'lock');
    const seen = new Set<number>();
    for (let round = 0; round < 50; round++) {
      const taken: DirectoryLock[] = [];
      const taking = DirectoryLock.take(directory).then((lock) => taken.push(lock));
      while (taken.length === 0) {
        if (existsSync(path)) seen.add(statSync(path).size);
        await Promise.race([taking, new Promise(setImmediate)]);
      }
      await taken[0]!.release();
    }

    expect(seen).not.toContain(0);
  });

  it.each<[string, string[]]>([
    ['a dead one', ['lock']],
    ['two dead ones, of which one was taking it over', ['lock', 'lock.takeover']],
  ])('is taken over by one process only, from %s', async (_, locks) => {
    const directory = await newDirectory();
    const dead = JSON.stringify({ ...here, pid: process.pid, startedAt: '1' });
    for (const lock of locks) await writeFile(join(directory, lock), dead);
    const takes = await Promise.allSettled(
      Array.from({ length: 20 }, async () => DirectoryLock.take(directory)),
    );
    const heirs = takes.filter((take) => take.status === 'fulfilled');
    await Promise.all(heirs.map(async ({ value }) => value.release()));

    expect(heirs).toHaveLength(1);
  });

  it.each<[string, (data: string) => Promise<void>]>([
    ['has a short file', async (data) => truncate(join(data, 'global', 'pg_control'), 100)],
    ['was restored in part', async (data) => rm(join(data, 'PG_VERSION'))],
  ])('is named in the error if it %s, and left unchanged', async (_, damage) => {
    const directory = await newDatabaseDirectory();
    const data = join(directory, 'data');
    const queue = new PgliteQueue({ directory });
    await queue.enqueue([due('kept')]);
    await queue.stop(0);
    await damage(data);
    const damaged = new PgliteQueue({ directory });

    await expect(damaged.enqueue([due('x')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/cannot be opened: it is damaged.* move the directory away/),
    });
    expect(await readdir(directory)).toEqual(['data']);
  });

  it('is created again after a first start that did not finish', async () => {
    const directory = await newDirectory();
    const base = join(directory, 'data', 'base', '1');
    await mkdir(base, { recursive: true });
    await writeFile(join(base, '1259'), '');
    const queue = new PgliteQueue({ directory });

    expect(await queue.enqueue([due('first')])).toEqual([undefined]);
    await queue.stop(0);
  });
});

describe('new PgliteQueue', () => {
  it.each<[string, object, string]>([
    ['no directory', {}, 'directory'],
    ['an empty directory', { directory: '' }, 'directory'],
    ['a name with a space', { directory: 'x', name: 'a b' }, 'name'],
    ['a concurrency of 0', { directory: 'x', concurrency: 0 }, 'concurrency'],
  ])('refuses %s', (_, options, path) => {
    expect(() => new PgliteQueue(options as never)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [expect.objectContaining({ path: `PgliteQueue.${path}` })],
      }),
    );
  });
});
