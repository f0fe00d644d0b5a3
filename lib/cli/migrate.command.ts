import { QueueTables } from '../postgres/migrations/queue-tables.js';
import { SchemaMigrator, type RunStatement } from '../postgres/migrations/schema.migrator.js';
import type { CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS,
  NO_QUEUE_HELP,
  NO_QUEUE_OPTION,
  readDatabaseCall,
} from './database/database-call.js';
import { withDatabase, runDatabaseCommand } from './database/database-session.js';

/** The output of `migrate --help`. */
export const help = `Usage: nestjs-webhook-token migrate [options]

Creates or updates the PostgreSQL tables of the stores. Every migration runs in its own transaction;
several processes may migrate at once. Migrations cannot be reverted.

${DATABASE_HELP}
${NO_QUEUE_HELP}
  --json                 print JSON: { schema, applied: [{ version, name }], queue: { version, applied } };
                         queue is null without pg-boss

Exit code: 0 up to date, 2 wrong usage or a database error.
`;

/**
 * Creates or updates the tables.
 *
 * @returns 0 if they are up to date, 2 for wrong usage or a database error
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'migrate', help, options: { ...DATABASE_OPTIONS, ...NO_QUEUE_OPTION } };
  return runDatabaseCommand(command, args, io, async (values) => {
    const call = readDatabaseCall(values, io.env);
    const queue = call.withQueue ? await QueueTables.load(call.schema) : undefined;
    const isJson = values.json === true;
    const write = (line: string): void => void (isJson || io.stdout.write(`${line}\n`));
    const report = await withDatabase(call, async (run) => {
      const applied = await new SchemaMigrator(run, call.schema).migrate();
      for (const { version, name } of applied) write(`applied ${version} ${name}`);
      const migrated = queue && (await migrateQueue(queue, run));
      if (migrated?.applied === true) write(`applied pg-boss ${migrated.version}`);
      return {
        schema: call.schema,
        applied: applied.map(({ version, name }) => ({ version, name })),
        queue: migrated ?? null,
      };
    });
    write(`The schema ${call.schema} is up to date.`);
    if (isJson) io.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`);
    return 0;
  });
}

async function migrateQueue(
  queue: QueueTables,
  run: RunStatement,
): Promise<{ readonly version: number | undefined; readonly applied: boolean }> {
  const before = await queue.version(run);
  // pg-boss also starts with a newer schema than its own.
  if (before !== undefined && before >= queue.latest) return { version: before, applied: false };
  await queue.migrate(run);
  return { version: await queue.version(run), applied: true };
}
