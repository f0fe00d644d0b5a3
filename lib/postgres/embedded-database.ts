import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { PGlite } from '@electric-sql/pglite';
import { type CancelWake, repeat, restAfter, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { DirectoryLock } from './directory-lock.js';

/** A database that is open in this process. */
interface SharedDatabase {
  /** Names of the queues that use it. */
  readonly names: Set<string>;
  readonly opening: Promise<EmbeddedDatabase>;
}

/** Open databases by directory. Two instances of PGlite would damage a directory, even in one process. */
const shared = new Map<string, SharedDatabase>();
/** Databases that are being closed and still hold the lock of their directory. */
const closing = new Map<string, Promise<void>>();

/** A PGlite, shared by the queues of this process that use its directory. */
export class EmbeddedDatabase {
  private constructor(
    readonly pglite: PGlite,
    private readonly lock: DirectoryLock,
    private readonly stopAutovacuum: CancelWake,
  ) {}

  /** Opens the database for a queue, or shares it if it is open. No two queues of a directory have the same name. */
  static async open(
    directory: string,
    name: string,
    clock: WebhookClock,
  ): Promise<EmbeddedDatabase> {
    const known = shared.get(directory) ?? {
      names: new Set<string>(),
      opening: EmbeddedDatabase.start(directory, clock),
    };
    if (known.names.has(name)) throw nameInUse(directory, name);
    known.names.add(name);
    shared.set(directory, known);
    try {
      return await known.opening;
    } catch (error) {
      // The next call tries again.
      if (shared.get(directory) === known) shared.delete(directory);
      throw error;
    }
  }

  /** Closes the database when its last queue releases it. */
  static async release(directory: string, name: string): Promise<void> {
    const known = shared.get(directory);
    known?.names.delete(name);
    if (known === undefined || known.names.size > 0) return;
    shared.delete(directory);
    const closed = known.opening.then(async (database) => database.close());
    const over = closed.catch(() => {}).finally(() => closing.delete(directory));
    closing.set(directory, over);
    await closed;
  }

  private static async start(directory: string, clock: WebhookClock): Promise<EmbeddedDatabase> {
    await closing.get(directory);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const lock = await DirectoryLock.take(directory);
    let pglite: PGlite | undefined;
    try {
      pglite = await openPglite(directory);
      warnOfLimits(directory);
      return new EmbeddedDatabase(pglite, lock, startAutovacuum(pglite, clock));
    } catch (error) {
      await pglite?.close().catch(() => {});
      await lock.release();
      throw error;
    }
  }

  private async close(): Promise<void> {
    this.stopAutovacuum();
    try {
      await this.pglite.close();
    } finally {
      await this.lock.release();
    }
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
  pglite: Pick<PGlite, 'query' | 'exec'>,
  clock: WebhookClock,
): CancelWake {
  return repeat(clock, VACUUM_INTERVAL, async () => {
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
  try {
    return await PGlite.create(join(directory, 'data'));
  } catch (cause) {
    throw new WebhookStoreError(
      'store_unavailable',
      `The embedded database in ${directory} cannot be opened: it is damaged, or from another version of PGlite. ` +
        'To start with an empty database, move the directory away; keep it, since it may hold deliveries.',
      { cause },
    );
  }
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
