import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { PGlite } from '@electric-sql/pglite';
import type { Db, PgBoss } from 'pg-boss';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import { BOSS_OPTIONS, type BossHost } from './boss-host.js';
import { DirectoryLock } from './directory-lock.js';
import { joinEmbeddedTransaction } from './transactions/join-transaction.js';

/** A pg-boss on a PGlite in this process. */
export class EmbeddedBossHost implements BossHost {
  readonly shared = false;
  private lock: DirectoryLock | undefined;
  private pglite: PGlite | undefined;
  private boss: PgBoss | undefined;

  constructor(
    private readonly directory: string,
    readonly schema: string,
  ) {}

  /** The open database. */
  get database(): PGlite {
    return this.pglite!;
  }

  async open(): Promise<PgBoss> {
    await mkdir(this.directory, { recursive: true, mode: 0o700 });
    this.lock = await DirectoryLock.take(this.directory);
    try {
      this.pglite = await openDatabase(this.directory);
      this.boss = await startBoss(this.pglite, this.schema);
    } catch (error) {
      await this.close().catch(() => {});
      throw error;
    }
    sayWhatItIs(this.directory);
    return this.boss;
  }

  async close(): Promise<void> {
    const { boss, pglite, lock } = this;
    this.boss = this.pglite = this.lock = undefined;
    try {
      await boss?.stop({ graceful: false });
      await pglite?.close();
    } finally {
      await lock?.release();
    }
  }

  join(tx: unknown): Db {
    return joinEmbeddedTransaction(tx);
  }
}

async function openDatabase(directory: string): Promise<PGlite> {
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
  const boss = new PgBoss({ ...BOSS_OPTIONS, backend: 'pglite', db: fromPglite(pglite), schema });
  // An error of its upkeep is met again by the queue itself; without a listener it would end the process.
  boss.on('error', () => {});
  return boss.start();
}

function sayWhatItIs(directory: string): void {
  process.emitWarning(
    `Webhook deliveries are kept in ${directory} by an embedded database. It is for one process, survives its crash but not a ` +
      'power cut, and takes 300 to 850 MB of memory, most of it at its first start.',
    { code: 'WEBHOOK_QUEUE_EMBEDDED' },
  );
}
