import { QueueTables } from '../postgres/migrations/queue-tables.js';
import { SchemaMigrator } from '../postgres/migrations/schema.migrator.js';
import type { CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS,
  readDatabaseCall,
  readOptions,
  type DatabaseCall,
} from './database/database-call.js';
import { withDatabase } from './database/database-session.js';
import { schemaReport, schemaText, type SchemaReport } from './database/schema-report.js';
import { runDatabaseCommand } from './database/run-database-command.js';

const HELP = `Usage: nestjs-webhook-token status [options]

Says which steps of the tables on PostgreSQL are applied, and which are pending.

${DATABASE_HELP}
  --json                 print JSON

Exit code: 0 up to date, 1 behind or ahead of this version of the package, 2 wrong usage, or the
database does not let it.
`;

const NOT_CURRENT = 1;

/**
 * Says how far the tables are.
 *
 * @returns 0 when they are up to date, 1 when they are not, 2 when that cannot be told
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  return runDatabaseCommand('status', io, async () => {
    const values = readOptions(args, DATABASE_OPTIONS);
    if (values.help === true) {
      io.stdout.write(HELP);
      return 0;
    }
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
