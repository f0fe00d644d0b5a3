import { type MigrationStep, migrationSteps } from './migration-steps.js';

/** How long a step waits for another process, or for a table that is in use, before it gives up. */
const LOCK_TIMEOUT = '30s';

/** The table that tells which steps were made. pg-boss may live in the same schema: its own is `version`. */
function migrationTable(schema: string): string {
  return `CREATE TABLE IF NOT EXISTS ${schema}.migration (
  version integer PRIMARY KEY,
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);`;
}

function mark(schema: string, { version, name }: MigrationStep): string {
  return `INSERT INTO ${schema}.migration (version, name) VALUES (${version}, '${name}');`;
}

/**
 * A step as one statement, so that a pool can run it: its transaction, one process at a time, and nothing where it was made
 * already.
 */
export function stepBlock(schema: string, step: MigrationStep): string {
  // A schema that an administrator has made is not asked to be made: that takes a right on the database.
  return `DO $migration$
BEGIN
  PERFORM set_config('lock_timeout', '${LOCK_TIMEOUT}', true);
  PERFORM pg_advisory_xact_lock(hashtextextended('nestjs-webhook-token.${schema}', 0));
  IF to_regnamespace('${schema}') IS NULL THEN
    BEGIN
      CREATE SCHEMA ${schema};
    EXCEPTION WHEN duplicate_schema OR unique_violation THEN
      -- pg-boss, which may begin at the same time, makes it without our lock.
    END;
  END IF;
  IF to_regclass('${schema}.migration') IS NULL THEN
    ${migrationTable(schema)}
  END IF;
  IF NOT EXISTS (SELECT FROM ${schema}.migration WHERE version = ${step.version}) THEN
    ${step.statements.join('\n')}
    ${mark(schema, step)}
  END IF;
END
$migration$`;
}

/**
 * The steps as plain SQL, for a migration tool of one's own: without a transaction, which such a tool has.
 *
 * @param from - the version that is in place; 0 for none
 */
export function migrationScript(schema: string, from = 0): string {
  const begin =
    from === 0 ? [`CREATE SCHEMA IF NOT EXISTS ${schema};`, migrationTable(schema)] : [];
  const steps = migrationSteps(schema)
    .filter(({ version }) => version > from)
    .flatMap((step) => [`-- ${step.version} ${step.name}`, ...step.statements, mark(schema, step)]);
  return [...begin, ...steps].map((line) => `${line}\n`).join('');
}
