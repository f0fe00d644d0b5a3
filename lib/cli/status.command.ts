import { type MigrationState, SchemaMigrator } from '../postgres/migrations/schema.migrator.js';
import { printResult } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS as options,
  readDatabaseCall,
  requireOptionsOnly,
  withDatabase,
} from './database.js';

export const help = `Usage: nestjs-webhook-token status [options]

Lists the applied and the pending migrations of the PostgreSQL tables.

${DATABASE_HELP}
  --json                 print JSON: { schema, state, latest, steps: [{ version, name, appliedAt }] }

Exit code: 0 this version of the package works with the tables, 1 it does not, 2 wrong usage or a
database error.
`;

const NOT_CURRENT = 1;

export { options };

export async function run(
  { values, positionals }: Arguments<typeof options>,
  io: CommandIo,
): Promise<number> {
  requireOptionsOnly(positionals);
  const call = await readDatabaseCall(values, io);
  const { schema } = call;
  const report = await withDatabase(call, async (run): Promise<SchemaReport> => {
    const migrator = new SchemaMigrator(run, schema);
    const { latest } = migrator;
    const states = await migrator.states();
    const steps = states.map(({ version, name, appliedAt }) => ({
      version,
      name,
      appliedAt: appliedAt?.toISOString(),
    }));
    return { schema, state: stateOf(states, latest), latest, steps };
  });
  printResult(io, values.json, report, schemaText(report));
  return report.state === 'current' ? 0 : NOT_CURRENT;
}

/** The state of tables, compared with this version of the package. */
type SchemaState = 'current' | 'behind' | 'ahead';

/** What `status --json` prints. */
export interface SchemaReport {
  readonly schema: string;
  readonly state: SchemaState;
  /** The latest version that this package knows. */
  readonly latest: number;
  readonly steps: readonly {
    readonly version: number;
    readonly name: string;
    /** ISO 8601; absent if it is pending. */
    readonly appliedAt?: string | undefined;
  }[];
}

function stateOf(steps: readonly MigrationState[], latest: number): SchemaState {
  // Later steps that only add to the schema do not concern this version.
  if (steps.some(({ version, breaking }) => version > latest && breaking === true)) return 'ahead';
  return steps.some(({ appliedAt }) => appliedAt === undefined) ? 'behind' : 'current';
}

const ADVICE: Readonly<Record<SchemaState, string>> = {
  current: 'The schema is up to date.',
  behind: 'The schema is behind this version of the package: run nestjs-webhook-token migrate.',
  ahead:
    'This version of the package does not work with the schema, which a newer version has changed. Install that version here too.',
};

function schemaText({ schema, state, steps }: SchemaReport): string {
  const width = Math.max(...steps.map(({ name }) => name.length));
  const rows = steps.map(
    ({ version, name, appliedAt }) =>
      `  ${String(version).padStart(3)}  ${name.padEnd(width)}  ${appliedAt === undefined ? 'pending' : `applied ${appliedAt}`}`,
  );
  return [`Schema ${schema}:`, ...rows, ADVICE[state], ''].join('\n');
}
