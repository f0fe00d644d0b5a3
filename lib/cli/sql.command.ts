import { migrationScript } from '../postgres/migrations/schema.migrator.js';
import { migrationSteps } from '../postgres/migrations/migration-steps.js';
import { QueueTables } from '../postgres/migrations/queue-tables.js';
import type { CommandIo } from './command.interface.js';
import {
  DatabaseUsageError,
  readOptions,
  readSchema,
  SCRIPT_OPTIONS,
} from './database/database-call.js';
import { runDatabaseCommand } from './database/database-session.js';

const HELP = `Usage: nestjs-webhook-token sql [options]

Prints the migrations as SQL for your own migration tool. Does not connect to a database.

  --schema <name>        schema of the tables; default webhooks
  --from <version>       current version, as status shows it; prints only later migrations
  --queue-from <version> current version of the pg-boss tables; with --from, required to include them
  --no-queue             omit the pg-boss tables, which are included if pg-boss is installed

The pg-boss part begins and commits its own transaction.

Exit code: 0 printed, 2 wrong usage.
`;

/**
 * Prints the migration script.
 *
 * @returns 0, or 2 for wrong usage
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  return runDatabaseCommand('sql', io, async () => {
    const values = readOptions(args, SCRIPT_OPTIONS);
    if (values.help === true) {
      io.stdout.write(HELP);
      return 0;
    }
    const schema = readSchema(values.schema);
    const from = readVersion('--from', values.from);
    if (from !== undefined && from > migrationSteps(schema).length) {
      throw new DatabaseUsageError('--from is newer than every version that this package knows.');
    }
    const queueFrom = readVersion('--queue-from', values['queue-from']);
    const isOmitted =
      values['no-queue'] === true || (from !== undefined && queueFrom === undefined);
    const queue = isOmitted ? undefined : await QueueTables.load(schema);
    const queueSql = queue === undefined ? '' : queueScript(queue, queueFrom);
    io.stdout.write(`${migrationScript(schema, from)}${queueSql}`);
    return 0;
  });
}

function queueScript(queue: QueueTables, from: number | undefined): string {
  const script = from === undefined ? queue.creationScript() : queueSteps(queue, from);
  return `-- pg-boss ${queue.latest}\n${script.trim()}\n`;
}

function queueSteps(queue: QueueTables, from: number): string {
  try {
    return queue.migrationScript(from);
  } catch {
    throw new DatabaseUsageError(
      `--queue-from is a version that the installed pg-boss cannot migrate to its own version ${queue.latest}.`,
    );
  }
}

function readVersion(option: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d{1,6}$/.test(value)) return Number(value);
  throw new DatabaseUsageError(`${option} must be a version number, as status shows it.`);
}
