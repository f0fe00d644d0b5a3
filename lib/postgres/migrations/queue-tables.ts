import { laneIndex } from '../job-statements.js';
import type { RunStatement } from './schema.migrator.js';

/** What is used of pg-boss, which may not be installed. */
type PgBossPackage = Pick<
  typeof import('pg-boss'),
  'PgBoss' | 'getConstructionPlans' | 'getMigrationPlans'
>;

/** Where pg-boss keeps the jobs of queues that have no table of their own. */
const JOB_TABLE = 'job_common';

/** The last thing that the script of pg-boss does. */
const MARK = /\.version\s*\(version\)\s*VALUES\s*\('?(\d+)'?\)/;

/** The tables of pg-boss in a schema: what `PgBossQueue` keeps deliveries in. They have versions of their own. */
export class QueueTables {
  private constructor(
    private readonly boss: PgBossPackage,
    private readonly schema: string,
  ) {}

  /** @returns `undefined` where pg-boss is not installed */
  static async load(schema: string): Promise<QueueTables | undefined> {
    try {
      return new QueueTables(await import('pg-boss'), schema);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') return undefined;
      throw error;
    }
  }

  /** The version that the installed pg-boss wants. */
  get latest(): number {
    const version = MARK.exec(this.creationScript())?.[1];
    if (version === undefined) throw new Error('The script of pg-boss names no version.');
    return Number(version);
  }

  /** @returns `undefined` where there are none */
  async version(run: RunStatement): Promise<number | undefined> {
    const table = `${this.schema}.version`;
    const [found] = await run('SELECT to_regclass($1::text) IS NOT NULL AS there', [table]);
    if (found?.['there'] !== true) return undefined;
    const [row] = await run(`SELECT version FROM ${table}`, []);
    return row === undefined ? undefined : Number(row['version']);
  }

  /** Brings them up to date, as a queue does that starts: an index that takes long is left to it, for the background. */
  async migrate(run: RunStatement): Promise<void> {
    const boss = new this.boss.PgBoss({
      db: {
        executeSql: async (text, values) => ({ rows: [...(await run(text, values ?? []))] }),
      },
      schema: this.schema,
      createSchema: false,
      supervise: false,
      schedule: false,
    });
    boss.on('error', () => {});
    try {
      await boss.start();
      await run(laneIndex(this.schema, JOB_TABLE), []);
    } finally {
      await boss.stop({ graceful: false });
    }
  }

  /** Makes them in a schema that exists. It opens and ends a transaction of its own. */
  creationScript(): string {
    const script = this.boss.getConstructionPlans(this.schema, { createSchema: false });
    return `${script}\n${laneIndex(this.schema, JOB_TABLE)};\n`;
  }

  /**
   * Brings them from a version to that of the installed pg-boss.
   *
   * @throws where pg-boss knows no way from that version
   */
  migrationScript(from: number): string {
    return this.boss.getMigrationPlans(this.schema, from);
  }
}
