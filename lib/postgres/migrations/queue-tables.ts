import { laneIndex } from '../job-statements.js';
import type { RunStatement } from './schema.migrator.js';

/** The exports of pg-boss that are used; it may not be installed. */
type PgBossPackage = Pick<
  typeof import('pg-boss'),
  'PgBoss' | 'getConstructionPlans' | 'getMigrationPlans'
>;

/** The table of pg-boss for the jobs of queues without a table of their own. */
const JOB_TABLE = 'job_common';

/** The last statement in the script of pg-boss. */
const MARK = /\.version\s*\(version\)\s*VALUES\s*\('?(\d+)'?\)/;

/** The tables of pg-boss in a schema, in which `PgBossQueue` stores deliveries. pg-boss counts its own versions. */
export class QueueTables {
  private constructor(
    private readonly boss: PgBossPackage,
    private readonly schema: string,
  ) {}

  /** @returns `undefined` if pg-boss is not installed */
  static async load(schema: string): Promise<QueueTables | undefined> {
    try {
      return new QueueTables(await import('pg-boss'), schema);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') return undefined;
      throw error;
    }
  }

  /** The version that the installed pg-boss needs. */
  get latest(): number {
    const version = MARK.exec(this.creationScript())?.[1];
    if (version === undefined) throw new Error('The script of pg-boss names no version.');
    return Number(version);
  }

  /** @returns `undefined` if there are no tables */
  async version(run: RunStatement): Promise<number | undefined> {
    const table = `${this.schema}.version`;
    const [found] = await run('SELECT to_regclass($1::text) IS NOT NULL AS there', [table]);
    if (found?.['there'] !== true) return undefined;
    const [row] = await run(`SELECT version FROM ${table}`, []);
    return row === undefined ? undefined : Number(row['version']);
  }

  /** Brings the tables up to date. An index that takes long is created later, in the background, by a running queue. */
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

  /** Creates the tables in an existing schema, in a transaction of its own. */
  creationScript(): string {
    const script = this.boss.getConstructionPlans(this.schema, { createSchema: false });
    return `${script}\n${laneIndex(this.schema, JOB_TABLE)};\n`;
  }

  /**
   * Brings the tables from a version to that of the installed pg-boss.
   *
   * @throws if pg-boss has no migration from that version
   */
  migrationScript(from: number): string {
    return this.boss.getMigrationPlans(this.schema, from);
  }
}
