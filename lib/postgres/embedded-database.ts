import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { PGlite } from '@electric-sql/pglite';
import type { PgBoss } from 'pg-boss';
import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { BOSS_OPTIONS } from './boss-host.js';
import { DirectoryLock } from './directory-lock.js';

/** A database that is open in this process, and how many queues use it. */
interface Shared {
  /** Of the queues that use it. */
  readonly names: Set<string>;
  readonly opening: Promise<EmbeddedDatabase>;
}

/** By directory: a PGlite that were opened twice would damage it, in one process as in two. */
const shared = new Map<string, Shared>();
/** Those that are being closed; opened before that is over, the lock would still be held. */
const closing = new Map<string, Promise<void>>();

/** A PGlite with a pg-boss on it, shared by the queues of this process that name its directory. */
export class EmbeddedDatabase {
  private constructor(
    readonly pglite: PGlite,
    readonly boss: PgBoss,
    private readonly lock: DirectoryLock,
    private readonly autovacuum: Autovacuum,
  ) {}

  /** Opens it for one more queue, under a name that no other has there. */
  static async open(
    directory: string,
    schema: string,
    name: string,
    clock: WebhookClock,
  ): Promise<EmbeddedDatabase> {
    const known = shared.get(directory) ?? {
      names: new Set<string>(),
      opening: EmbeddedDatabase.start(directory, schema, clock),
    };
    if (known.names.has(name)) throw taken(directory, name);
    known.names.add(name);
    shared.set(directory, known);
    try {
      return await known.opening;
    } catch (error) {
      // The next to come begins anew.
      if (shared.get(directory) === known) shared.delete(directory);
      throw error;
    }
  }

  /** One queue needs it no longer; the last one closes it. */
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

  private static async start(
    directory: string,
    schema: string,
    clock: WebhookClock,
  ): Promise<EmbeddedDatabase> {
    await closing.get(directory);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const lock = await DirectoryLock.take(directory);
    let pglite: PGlite | undefined;
    try {
      pglite = await openPglite(directory);
      const boss = await startBoss(pglite, schema);
      sayWhatItIs(directory);
      const autovacuum = new Autovacuum(pglite, clock);
      autovacuum.start();
      return new EmbeddedDatabase(pglite, boss, lock, autovacuum);
    } catch (error) {
      await pglite?.close().catch(() => {});
      await lock.release();
      throw error;
    }
  }

  private async close(): Promise<void> {
    this.autovacuum.stop();
    try {
      await this.boss.stop({ graceful: false });
      await this.pglite.close();
    } finally {
      await this.lock.release();
    }
  }
}

/** Milliseconds between two looks at the tables. */
const VACUUM_INTERVAL = 10_000;
/** A vacuum holds up the process. It takes at most 1 part in this many of the time. */
const VACUUM_SHARE = 20;

/** The table with the most dead rows, if they are more than a fifth of its rows. */
const TABLE_TO_VACUUM = `SELECT format('%I.%I', schemaname, relname) AS name FROM pg_stat_user_tables
  WHERE n_dead_tup > 1000 + n_live_tup / 5
  ORDER BY n_dead_tup DESC LIMIT 1`;

/**
 * Vacuums the tables of a PGlite, one at a time: it has no autovacuum of its own, and without a vacuum no space of a
 * row that was changed or removed is ever used again.
 */
export class Autovacuum {
  private cancelTimer: CancelWake = () => {};
  private stopped = false;

  constructor(
    private readonly pglite: Pick<PGlite, 'query' | 'exec'>,
    private readonly clock: WebhookClock,
  ) {}

  start(): void {
    this.schedule(VACUUM_INTERVAL);
  }

  stop(): void {
    this.stopped = true;
    this.cancelTimer();
  }

  private schedule(wait: number): void {
    if (this.stopped) return;
    this.cancelTimer = this.clock.wakeAt(this.clock.now() + wait, () => void this.runRound());
  }

  private async runRound(): Promise<void> {
    let wait = VACUUM_INTERVAL;
    try {
      const { rows } = await this.pglite.query<{ name: string }>(TABLE_TO_VACUUM);
      const start = this.clock.now();
      if (rows[0] !== undefined && !this.stopped) {
        await this.pglite.exec(`VACUUM (ANALYZE) ${rows[0].name}`);
        wait = Math.max(wait, VACUUM_SHARE * (this.clock.now() - start));
      }
    } catch {
      // Only space is lost, and the next round tries again.
    }
    this.schedule(wait);
  }
}

async function openPglite(directory: string): Promise<PGlite> {
  const { PGlite } = await import('@electric-sql/pglite');
  try {
    return await PGlite.create(join(directory, 'data'));
  } catch (cause) {
    throw new WebhookStoreError(
      'store_unavailable',
      `The embedded database in ${directory} cannot be opened: it may be damaged, or of another version of PGlite. ` +
        'Move the directory away to begin with an empty one, and keep it: it may hold deliveries.',
      { cause },
    );
  }
}

async function startBoss(pglite: PGlite, schema: string): Promise<PgBoss> {
  const { fromPglite, PgBoss } = await import('pg-boss');
  const boss = new PgBoss({
    ...BOSS_OPTIONS,
    // Its upkeep scans whole tables, which holds up the process; nothing here needs it.
    supervise: false,
    backend: 'pglite',
    db: fromPglite(pglite),
    schema,
  });
  // An error of its upkeep is met again by the queue itself; without a listener it would end the process.
  boss.on('error', () => {});
  return boss.start();
}

function taken(directory: string, name: string): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    `Another queue of this process is named "${name}" in ${directory}: give each its own name, or its own directory.`,
  );
}

function sayWhatItIs(directory: string): void {
  process.emitWarning(
    `Webhook deliveries are kept in ${directory} by an embedded database. It is for one process, survives its crash but not a ` +
      'power cut, and takes 300 to 850 MB of memory, most of it at its first start.',
    { code: 'WEBHOOK_QUEUE_EMBEDDED' },
  );
}
