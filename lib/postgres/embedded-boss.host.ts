import type { PGlite } from '@electric-sql/pglite';
import type { Db, PgBoss } from 'pg-boss';
import type { BossHost } from './boss-host.js';
import { EmbeddedDatabase } from './embedded-database.js';
import { joinEmbeddedTransaction } from './transactions/join-transaction.js';

/** A pg-boss on a PGlite in this process, which other queues may use too. */
export class EmbeddedBossHost implements BossHost {
  readonly shared = false;
  private opened: EmbeddedDatabase | undefined;

  constructor(
    private readonly directory: string,
    readonly schema: string,
    private readonly name: string,
  ) {}

  /** The open database. */
  get database(): PGlite {
    return this.opened!.pglite;
  }

  async open(): Promise<PgBoss> {
    this.opened = await EmbeddedDatabase.open(this.directory, this.schema, this.name);
    return this.opened.boss;
  }

  async close(): Promise<void> {
    if (this.opened === undefined) return;
    this.opened = undefined;
    await EmbeddedDatabase.release(this.directory, this.name);
  }

  join(tx: unknown): Db {
    return joinEmbeddedTransaction(tx);
  }
}
