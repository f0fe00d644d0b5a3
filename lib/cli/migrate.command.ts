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
import { withDatabase, runDatabaseCommand } from './database/database-session.js';

const HELP = `Usage: nestjs-webhook-token migrate [options]

Creates or updates the PostgreSQL tables of the stores. Every migration runs in its own transaction;
several processes may migrate at once. Migrations cannot be reverted.

${DATABASE_HELP}

Exit code: 0 up to date, 2 wrong usage or a database error.
`;

/**
 * Creates or updates the tables.
 *
 * @returns 0 if they are up to date, 2 for wrong usage or a database error
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  return runDatabaseCommand('migrate', io, async () => {
    const values = readOptions(args, DATABASE_OPTIONS);
    if (values.help === true) {
      io.stdout.write(HELP);
      return 0;
    }
    if (values.json === true)
      throw new DatabaseUsageError('--json is only an option of the command status.');
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
  // pg-boss also starts with a newer schema than its own.
  if (before !== undefined && before >= queue.latest) return;
  await queue.migrate(run);
  io.stdout.write(`applied pg-boss ${await queue.version(run)}\n`);
}
