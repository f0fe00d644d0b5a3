import { existsSync } from 'node:fs';
import { mkdir, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
// Not the global one, which fake timers of Jest and Vitest replace.
import { setImmediate } from 'node:timers/promises';
import type { PGlite } from '@electric-sql/pglite';
import { type CancelWake, repeat, restAfter, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { Database } from './database.js';
import { EMBEDDED } from './database-failure.js';
import { DirectoryLock } from './directory-lock.js';
import type { QueueHost } from './queue-connection.js';

/** A database that is open in this process. */
interface OpenDirectory {
  /** @throws {@link WebhookStoreError} `store_unavailable` if another process has taken the directory over */
  readonly use: () => Promise<PGlite>;
  readonly close: () => Promise<void>;
}

/** Open databases by directory, with the names of the queues that use them. Two PGlites would damage a directory, even in one process. */
const shared = new Map<
  string,
  { readonly names: Set<string>; readonly opening: Promise<OpenDirectory> }
>();
/** Databases that are being closed and still hold the lock of their directory. */
const closing = new Map<string, Promise<void>>();

/** A PGlite in this process, shared with other queues of the directory, which have other names. */
export class EmbeddedHost implements QueueHost {
  readonly shared = false;
  readonly schema = 'webhooks';
  readonly migrates = true;
  readonly server = EMBEDDED;
  private opened: OpenDirectory | undefined;

  constructor(
    private readonly directory: string,
    private readonly name: string,
    private readonly clock: WebhookClock,
  ) {}

  /**
   * The open database, for one statement or transaction.
   *
   * @throws {@link WebhookStoreError} `store_unavailable` if another process has taken the directory over
   */
  async use(): Promise<PGlite> {
    return this.opened!.use();
  }

  async open(): Promise<Database> {
    const { directory, name, clock } = this;
    const known = shared.get(directory) ?? {
      names: new Set<string>(),
      opening: openDirectory(directory, clock),
    };
    if (known.names.has(name)) throw nameInUse(directory, name);
    known.names.add(name);
    shared.set(directory, known);
    try {
      this.opened = await known.opening;
    } catch (error) {
      // The next call tries again.
      if (shared.get(directory) === known) shared.delete(directory);
      throw error;
    }
    return new Database(this.opened.use, clock);
  }

  /** Closes the database if no other queue uses it. */
  async close(): Promise<void> {
    const { directory, name } = this;
    const known = shared.get(directory);
    if (this.opened === undefined || known === undefined) return;
    this.opened = undefined;
    known.names.delete(name);
    if (known.names.size > 0) return;
    shared.delete(directory);
    const closed = known.opening.then(async ({ close }) => close());
    const over = closed.catch(() => {}).finally(() => closing.delete(directory));
    closing.set(directory, over);
    await closed;
  }
}

/**
 * Milliseconds after which a statement waits for the event loop. PGlite answers without I/O: statements that are awaited one after
 * the other would stop the timers and requests of the process until the last one.
 */
const LONGEST_TURN = 10;

async function openDirectory(directory: string, clock: WebhookClock): Promise<OpenDirectory> {
  await closing.get(directory);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const lock = await DirectoryLock.take(directory, clock);
  let pglite: PGlite | undefined;
  try {
    pglite = await openPglite(directory);
    warnOfLimits(directory);
    const database = pglite;
    let lastYield = performance.now();
    const use = async (): Promise<PGlite> => {
      if (performance.now() - lastYield > LONGEST_TURN) {
        await setImmediate();
        lastYield = performance.now();
      }
      await lock.requireOwn();
      return database;
    };
    const stopAutovacuum = startAutovacuum(use, clock);
    const close = async (): Promise<void> => {
      stopAutovacuum();
      try {
        // The end of a database writes to its directory.
        if (await lock.isOwn()) await database.close();
      } finally {
        await lock.release();
      }
    };
    return { use, close };
  } catch (error) {
    await pglite?.close().catch(() => {});
    await lock.release();
    throw error;
  }
}

/** Milliseconds between two checks of the tables. */
const VACUUM_INTERVAL = 10_000;
/** A vacuum blocks the process. It may take 1 part in this many of the time. */
const VACUUM_SHARE = 20;

/** The table with the most dead rows, if they are more than a fifth of its rows. */
const TABLE_TO_VACUUM = `SELECT format('%I.%I', schemaname, relname) AS name FROM pg_stat_user_tables
  WHERE n_dead_tup > 1000 + n_live_tup / 5
  ORDER BY n_dead_tup DESC LIMIT 1`;

/**
 * Vacuums the tables of a PGlite, one at a time. PGlite has no autovacuum; without a vacuum, the space of changed and removed rows is
 * never reused.
 *
 * @returns a function that ends it
 */
export function startAutovacuum(
  use: () => Promise<Pick<PGlite, 'query' | 'exec'>>,
  clock: WebhookClock,
): CancelWake {
  return repeat(clock, VACUUM_INTERVAL, async () => {
    const pglite = await use();
    const { rows } = await pglite.query<{ name: string }>(TABLE_TO_VACUUM);
    const [table] = rows;
    if (table === undefined) return VACUUM_INTERVAL;
    const start = clock.now();
    await pglite.exec(`VACUUM (ANALYZE) ${table.name}`);
    return Math.max(VACUUM_INTERVAL, restAfter(clock.now() - start, VACUUM_SHARE));
  });
}

async function openPglite(directory: string): Promise<PGlite> {
  const { PGlite } = await import('@electric-sql/pglite');
  const data = join(directory, 'data');
  try {
    if (!existsSync(join(data, 'PG_VERSION')) && (await hasTables(data))) {
      throw new Error('PG_VERSION is missing');
    }
    return await PGlite.create(data);
  } catch (cause) {
    throw new WebhookStoreError(
      'store_unavailable',
      `The embedded database in ${directory} cannot be opened: it is damaged, or from another version of PGlite. ` +
        'To start with an empty database, move the directory away; keep it, since it may hold deliveries.',
      { cause },
    );
  }
}

/** PostgreSQL numbers its own tables below this, and those that are created later from it. */
const FIRST_TABLE = 16_384;

/** Whether a directory holds tables. PGlite would overwrite it without PG_VERSION, as after a first start that did not finish. */
async function hasTables(data: string): Promise<boolean> {
  const files = await readdir(join(data, 'base'), { recursive: true }).catch(() => []);
  return files.some((file) => Number(basename(file)) >= FIRST_TABLE);
}

function nameInUse(directory: string, name: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `Another queue of this process is named "${name}" in ${directory}: give each its own name or its own directory.`,
  );
}

function warnOfLimits(directory: string): void {
  process.emitWarning(
    `Webhook deliveries are stored in an embedded database in ${directory}. It serves one process, survives a crash but not a ` +
      'power cut, and takes 300 to 850 MB of memory, most of it at its first start.',
    { code: 'WEBHOOK_QUEUE_EMBEDDED' },
  );
}
