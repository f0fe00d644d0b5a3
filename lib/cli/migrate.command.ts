import { QueueTables } from '../postgres/migrations/queue-tables.js';
import { SchemaMigrator, type RunStatement } from '../postgres/migrations/schema.migrator.js';
import type { CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS,
  DatabaseUsageError,
  readDatabaseCall,
  readOptions,
} from './database/database-call.js';
import { withDatabase } from './database/database-session.js';
import { runDatabaseCommand } from './database/run-database-command.js';

const HELP = `Usage: nestjs-webhook-token migrate [options]

Makes the tables of the stores on PostgreSQL, or brings them up to date: step by step, each in a
transaction of its own. Several at once are fine. Nothing is ever taken back.

${DATABASE_HELP}

Exit code: 0 up to date, 2 not: wrong usage, or the database does not let it.
`;

/**
 * Brings the tables up to date.
 *
 * @returns 0 when they are, 2 when they cannot be
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  return runDatabaseCommand('migrate', io, async () => {
    const values = readOptions(args, DATABASE_OPTIONS);
    if (values.help === true) {
      io.stdout.write(HELP);
      return 0;
    }
    if (values.json === true) throw new DatabaseUsageError('--json is an option of status.');
    const call = readDatabaseCall(values, io.env);
    const queue = call.withQueue ? await QueueTables.load(call.schema) : undefined;
    await withDatabase(call, async (run) => {
      for (const { version, name } of await new SchemaMigrator(run, call.schema).migrate()) {
        io.stdout.write(`applied ${version} ${name}\n`);
      }
      if (queue !== undefined) await migrateQueue(queue, run, io);
    });
    io.stdout.write(`The schema ${call.schema} is up to date.\n`);
    return 0;
  });
}

async function migrateQueue(queue: QueueTables, run: RunStatement, io: CommandIo): Promise<void> {
  const before = await queue.version(run);
  // One that is ahead serves an older pg-boss too, as its authors see it: it starts with it.
  if (before !== undefined && before >= queue.latest) return;
  await queue.migrate(run);
  io.stdout.write(`applied pg-boss ${await queue.version(run)}\n`);
}
