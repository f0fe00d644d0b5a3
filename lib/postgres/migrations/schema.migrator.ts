import { WebhookStoreError } from '../../errors/webhook.error.js';
import type { RunStatement } from '../database.js';
import { type MigrationStep, migrationSteps } from './migration-steps.js';

/** How long a step waits for another process or for a table in use. */
const LOCK_TIMEOUT = '30s';

/** The table of applied steps. */
function migrationTable(schema: string): string {
  return `CREATE TABLE IF NOT EXISTS ${schema}.migration (
  version integer PRIMARY KEY,
  name text NOT NULL,
  breaking boolean NOT NULL DEFAULT false,
  applied_at timestamptz NOT NULL DEFAULT now()
);`;
}

function mark(schema: string, { version, name, breaking }: MigrationStep): string {
  return `INSERT INTO ${schema}.migration (version, name, breaking) VALUES (${version}, '${name}', ${breaking === true});`;
}

/**
 * A step as one statement, so that a pool can run it: one transaction, one process at a time, and no effect if the step is
 * already applied.
 */
export function stepBlock(schema: string, step: MigrationStep): string {
  // An existing schema is not created again, since that needs a privilege on the database.
  return `DO $migration$
BEGIN
  PERFORM set_config('lock_timeout', '${LOCK_TIMEOUT}', true);
  PERFORM pg_advisory_xact_lock(hashtextextended('nestjs-webhook-token.${schema}', 0));
  IF to_regnamespace('${schema}') IS NULL THEN
    BEGIN
      CREATE SCHEMA ${schema};
    EXCEPTION WHEN duplicate_schema OR unique_violation THEN
      -- Another tool has created it at the same time, without this lock.
    END;
  END IF;
  IF to_regclass('${schema}.migration') IS NULL THEN
    ${migrationTable(schema)}
  END IF;
  BEGIN
    ${mark(schema, step)}
  EXCEPTION WHEN unique_violation THEN
    -- Already applied. Above READ COMMITTED, a SELECT would not see what was committed while this waited for the lock.
    RETURN;
  END;
  ${step.statements.join('\n')}
END
$migration$`;
}

/**
 * The steps as plain SQL, for another migration tool: without a transaction, which that tool opens. The first one creates the
 * schema.
 *
 * @param from - the version of the schema now; 0 for none
 */
export function scriptSteps(schema: string, from = 0) {
  return migrationSteps(schema)
    .filter(({ version }) => version > from)
    .map((step) => {
      const { version, name, statements } = step;
      const begin =
        version === 1 ? [`CREATE SCHEMA IF NOT EXISTS ${schema};`, migrationTable(schema)] : [];
      const lines = [...begin, `-- ${version} ${name}`, ...statements, mark(schema, step)];
      return { version, name, sql: lines.map((line) => `${line}\n`).join('') };
    });
}

/** A step, and when it was applied. */
export interface MigrationState {
  readonly version: number;
  readonly name: string;
  /** Absent if the step is pending. */
  readonly appliedAt?: Date;
  /** Whether older versions of the package do not work with it. */
  readonly breaking?: boolean;
}

/** Brings the tables of the stores up to date, step by step. There is no way back. */
export class SchemaMigrator {
  private readonly steps: readonly MigrationStep[];

  constructor(
    private readonly run: RunStatement,
    private readonly schema: string,
  ) {
    this.steps = migrationSteps(schema);
  }

  /** The latest version that this package knows. */
  get latest(): number {
    return this.steps.length;
  }

  /** All steps that this package knows, and later ones that a newer package has applied. */
  async states(): Promise<readonly MigrationState[]> {
    const applied = await this.applied();
    const known = this.steps.map(({ version, name }): MigrationState => {
      const state = applied.find((one) => one.version === version);
      return state ?? { version, name };
    });
    return [...known, ...applied.filter(({ version }) => version > this.latest)];
  }

  /**
   * Applies the pending steps. Several processes may call it at the same time: one applies a step, and the others wait for it.
   * Steps of a newer version that only add to the schema are accepted, so that an older version can be deployed again.
   *
   * @returns the steps that were pending
   * @throws {@link WebhookStoreError} `schema_ahead` if a newer version of the package has changed the schema so that this
   *   version does not work with it
   */
  async migrate(): Promise<readonly MigrationStep[]> {
    const pending = await this.pendingSteps();
    for (const step of pending) await this.run(stepBlock(this.schema, step), []);
    return pending;
  }

  /** @throws {@link WebhookStoreError} `schema_behind`, `schema_ahead` unless this version works with the schema */
  async requireCurrent(): Promise<void> {
    if ((await this.pendingSteps()).length === 0) return;
    throw new WebhookStoreError(
      'schema_behind',
      `The schema ${this.schema} does not have the tables that this version of the package needs: ` +
        `run npx nestjs-webhook-token migrate --schema ${this.schema} as a step of the deployment.`,
    );
  }

  private async pendingSteps(): Promise<readonly MigrationStep[]> {
    const states = await this.states();
    const newest = states.findLast(
      ({ version, breaking }) => breaking === true && version > this.latest,
    );
    if (newest !== undefined) throw ahead(this.schema, newest.version, this.latest);
    return this.steps.filter((_, index) => states[index]!.appliedAt === undefined);
  }

  private async applied(): Promise<readonly (MigrationState & { appliedAt: Date })[]> {
    const table = `${this.schema}.migration`;
    const [found] = await this.run(
      `SELECT to_regclass($1::text) IS NOT NULL AS there, current_setting('server_encoding') AS encoding`,
      [table],
    );
    if (found?.['there'] !== true) {
      requireUnicode(found?.['encoding']);
      return [];
    }
    const rows = await this.run(
      `SELECT version, name, breaking, round(extract(epoch FROM applied_at) * 1000)::float8 AS at
       FROM ${table} ORDER BY version`,
      [],
    ).catch((error: unknown) => {
      if ((error as { code?: unknown }).code !== UNDEFINED_COLUMN) throw error;
      throw new WebhookStoreError(
        'store_unavailable',
        `The schema ${this.schema} has a table "migration" that is not of this library: use another schema.`,
        { cause: error },
      );
    });
    return (
      rows as unknown as { version: number; name: string; breaking: boolean; at: number }[]
    ).map(({ at, ...step }) => ({ ...step, appliedAt: new Date(at) }));
  }
}

/** The SQLSTATE. */
const UNDEFINED_COLUMN = '42703';

/** SQL_ASCII stores the bytes as they are. */
function requireUnicode(encoding: unknown): void {
  if (encoding === 'UTF8' || encoding === 'SQL_ASCII') return;
  throw new WebhookStoreError(
    'store_unavailable',
    `The database has the encoding ${String(encoding)}, which cannot hold every character of an event or of an answer: ` +
      `create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and use that.`,
  );
}

function ahead(schema: string, found: number, known: number): WebhookStoreError {
  return new WebhookStoreError(
    'schema_ahead',
    `The schema ${schema} is at version ${found}, but this version of the package only knows ${known}: a newer version has migrated it. ` +
      'Nothing was changed. Install the newer version here too.',
  );
}
