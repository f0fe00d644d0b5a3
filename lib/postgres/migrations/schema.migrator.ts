import { WebhookStoreError } from '../../errors/webhook.error.js';
import { stepBlock } from './migration-script.js';
import { type MigrationStep, migrationSteps } from './migration-steps.js';

/** Runs one statement by itself, and gives its rows. */
export type RunStatement = (
  statement: string,
  values: readonly unknown[],
) => Promise<readonly Record<string, unknown>[]>;

/** A step, and when it was made. */
export interface MigrationState {
  readonly version: number;
  readonly name: string;
  /** Absent while it is pending. */
  readonly appliedAt?: Date;
}

/** Brings the tables of the stores up to date, one step after the other, and never back. */
export class SchemaMigrator {
  private readonly steps: readonly MigrationStep[];

  constructor(
    private readonly run: RunStatement,
    private readonly schema: string,
  ) {
    this.steps = migrationSteps(schema);
  }

  /** The version this package knows. */
  get latest(): number {
    return this.steps.length;
  }

  /** Every step this package knows, and those beyond that a newer one has made. */
  async states(): Promise<readonly MigrationState[]> {
    const applied = await this.applied();
    const known = this.steps.map(({ version, name }): MigrationState => {
      const state = applied.find((one) => one.version === version);
      return state ?? { version, name };
    });
    return [...known, ...applied.filter(({ version }) => version > this.latest)];
  }

  /**
   * Makes the steps that are pending. Any number of processes may do so at once: each step is made by one of them, and the
   * others wait for it.
   *
   * @returns those that were pending
   * @throws {@link WebhookStoreError} `schema_ahead` where a newer version of the package was here
   */
  async migrate(): Promise<readonly MigrationStep[]> {
    const states = await this.states();
    if (states.length > this.latest) throw ahead(this.schema, states.at(-1)!.version, this.latest);
    const pending = this.steps.filter((_, index) => states[index]!.appliedAt === undefined);
    for (const step of pending) await this.run(stepBlock(this.schema, step), []);
    return pending;
  }

  private async applied(): Promise<readonly (MigrationState & { appliedAt: Date })[]> {
    const table = `${this.schema}.migration`;
    const [found] = await this.run('SELECT to_regclass($1::text) IS NOT NULL AS there', [table]);
    if (found?.['there'] !== true) return [];
    const rows = await this.run(
      `SELECT version, name, round(extract(epoch FROM applied_at) * 1000)::float8 AS at
       FROM ${table} ORDER BY version`,
      [],
    );
    return (rows as unknown as { version: number; name: string; at: number }[]).map(
      ({ version, name, at }) => ({ version, name, appliedAt: new Date(at) }),
    );
  }
}

function ahead(schema: string, found: number, known: number): WebhookStoreError {
  return new WebhookStoreError(
    'schema_ahead',
    `The schema ${schema} is at version ${found}, and this version of the package knows ${known}: a newer one has migrated it. ` +
      'Nothing was changed; install the newer version here too.',
  );
}
