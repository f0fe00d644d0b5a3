import type { Db, PgBoss } from 'pg-boss';
import { BOSS_OPTIONS, type BossHost } from './boss-host.js';
import type {
  PgBossDeliveryQueueOptions,
  PostgresPool,
} from './pg-boss-delivery-queue-options.interface.js';
import { joinTransaction } from './transactions/join-transaction.js';
import { rowsOf } from './transactions/query-result.js';

/** A pg-boss on a PostgreSQL server. */
export class ServerBossHost implements BossHost {
  readonly shared = true;
  private owned: PgBoss | undefined;

  constructor(
    private readonly options: PgBossDeliveryQueueOptions,
    readonly schema: string,
  ) {}

  async open(): Promise<PgBoss> {
    if (this.options.boss !== undefined) return this.options.boss.start();
    this.owned = await this.createBoss();
    try {
      return await this.owned.start();
    } catch (error) {
      await this.close().catch(() => {});
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.owned?.stop({ graceful: false });
  }

  join(tx: unknown): Db {
    return joinTransaction(tx);
  }

  private async createBoss(): Promise<PgBoss> {
    // Here and not above: the replay store of this entry point needs no pg-boss.
    const { PgBoss } = await import('pg-boss');
    const { connectionString, pool, migrate = true } = this.options;
    const boss = new PgBoss({
      ...BOSS_OPTIONS,
      ...(pool === undefined ? { connectionString: connectionString! } : { db: poolDb(pool) }),
      schema: this.schema,
      migrate,
      createSchema: migrate,
      application_name: 'nestjs-webhook-token',
    });
    // An error of its upkeep is met again by the queue itself; without a listener it would end the process.
    boss.on('error', () => {});
    return boss;
  }
}

function poolDb(pool: PostgresPool): Db {
  return {
    executeSql: async (text, values) => ({ rows: rowsOf(await pool.query(text, values)) }),
  };
}
