import { QueueTables } from '../postgres/migrations/queue-tables.js';
import { type MigrationState, SchemaMigrator } from '../postgres/migrations/schema.migrator.js';
import type { CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS,
  type DatabaseCall,
  NO_QUEUE_HELP,
  NO_QUEUE_OPTION,
  readDatabaseCall,
} from './database/database-call.js';
import { runDatabaseCommand, withDatabase } from './database/database-session.js';

/** The output of `status --help`. */
export const help = `Usage: nestjs-webhook-token status [options]

Lists the applied and the pending migrations of the PostgreSQL tables.

${DATABASE_HELP}
${NO_QUEUE_HELP}
  --json                 print JSON: { schema, state, latest, steps: [{ version, name, appliedAt }], queue }

Exit code: 0 up to date, 1 behind or ahead of this version of the package, 2 wrong usage or a
database error.
`;

const NOT_CURRENT = 1;

/**
 * Reports the state of the tables.
 *
 * @returns 0 if they are up to date, 1 if not, 2 for wrong usage or a database error
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'status', help, options: { ...DATABASE_OPTIONS, ...NO_QUEUE_OPTION } };
  return runDatabaseCommand(command, args, io, async (values) => {
    const report = await readReport(readDatabaseCall(values, io.env));
    io.stdout.write(
      values.json === true ? `${JSON.stringify(report, undefined, 2)}\n` : schemaText(report),
    );
    return report.state === 'current' ? 0 : NOT_CURRENT;
  });
}

async function readReport(call: DatabaseCall): Promise<SchemaReport> {
  const queue = call.withQueue ? await QueueTables.load(call.schema) : undefined;
  return withDatabase(call, async (run) => {
    const migrator = new SchemaMigrator(run, call.schema);
    return schemaReport({
      schema: call.schema,
      latest: migrator.latest,
      steps: await migrator.states(),
      queue: queue && { version: await queue.version(run), latest: queue.latest },
    });
  });
}

/** The state of tables, compared with this version of the package. */
type SchemaState = 'current' | 'behind' | 'ahead';

/** What `status --json` prints. */
export interface SchemaReport {
  readonly schema: string;
  /** Of the tables of stores and queue together. */
  readonly state: SchemaState;
  /** The latest version that this package knows. */
  readonly latest: number;
  readonly steps: readonly {
    readonly version: number;
    readonly name: string;
    /** ISO 8601; `null` if it is pending. */
    readonly appliedAt: string | null;
  }[];
  /** The pg-boss tables; `null` if they are omitted or pg-boss is not installed. `version` is `null` if there are no tables. */
  readonly queue: {
    readonly state: SchemaState;
    readonly version: number | null;
    readonly latest: number;
  } | null;
}

/** What the database contains. */
interface SchemaFindings {
  readonly schema: string;
  readonly latest: number;
  readonly steps: readonly MigrationState[];
  readonly queue: { readonly version: number | undefined; readonly latest: number } | undefined;
}

export function schemaReport({ schema, latest, steps, queue }: SchemaFindings): SchemaReport {
  const queueReport = queue && {
    state: queueState(queue.version ?? 0, queue.latest),
    version: queue.version ?? null,
    latest: queue.latest,
  };
  const own = ownState(steps, latest);
  return {
    schema,
    state: own === 'current' && queueReport?.state === 'behind' ? 'behind' : own,
    latest,
    steps: steps.map(({ version, name, appliedAt }) => ({
      version,
      name,
      appliedAt: appliedAt?.toISOString() ?? null,
    })),
    queue: queueReport ?? null,
  };
}

function ownState(steps: readonly MigrationState[], latest: number): SchemaState {
  if (steps.length > latest) return 'ahead';
  return steps.some(({ appliedAt }) => appliedAt === undefined) ? 'behind' : 'current';
}

function queueState(version: number, latest: number): SchemaState {
  if (version === latest) return 'current';
  return version < latest ? 'behind' : 'ahead';
}

const ADVICE: Readonly<Record<SchemaState, string>> = {
  current: 'The schema is up to date.',
  behind: 'The schema is behind this version of the package: run nestjs-webhook-token migrate.',
  ahead:
    'The schema is ahead of this version of the package: a newer version has migrated it. Install that version here too.',
};

export function schemaText({ schema, state, steps, queue }: SchemaReport): string {
  const width = Math.max(...steps.map(({ name }) => name.length), 'pg-boss'.length);
  const rows = steps.map(
    ({ version, name, appliedAt }) =>
      `  ${String(version).padStart(3)}  ${name.padEnd(width)}  ${appliedAt === null ? 'pending' : `applied ${appliedAt}`}`,
  );
  return [`Schema ${schema}:`, ...rows, ...queueRow(queue, width), ADVICE[state], ''].join('\n');
}

function queueRow(queue: SchemaReport['queue'], width: number): string[] {
  if (queue === null) return [];
  const found = queue.version === null ? 'missing' : `version ${queue.version}`;
  return [`       ${'pg-boss'.padEnd(width)}  ${found}; installed: ${queue.latest}`];
}
