import { migrationScript } from '../postgres/migrations/migration-script.js';
import { migrationSteps } from '../postgres/migrations/migration-steps.js';
import { QueueTables } from '../postgres/migrations/queue-tables.js';
import type { CommandIo } from './command.interface.js';
import {
  DatabaseUsageError,
  readOptions,
  readSchema,
  SCRIPT_OPTIONS,
} from './database/database-call.js';
import { runDatabaseCommand } from './database/run-database-command.js';

const HELP = `Usage: nestjs-webhook-token sql [options]

Prints what migrate does as SQL, for a migration tool of your own. It connects to nothing.

  --schema <name>        where the tables lie; webhooks, unless given
  --from <version>       the version that is in place, as status says: only the steps behind it
  --queue-from <version> the same for the tables of pg-boss; with --from, they are left out without it
  --no-queue             leave them out; they are included where pg-boss is installed

The part of pg-boss opens and ends a transaction of its own.

Exit code: 0, or 2 for a wrong usage.
`;

/**
 * Prints the script of the tables.
 *
 * @returns 0, or 2 for a wrong usage
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
      throw new DatabaseUsageError('--from is a version that this package does not know.');
    }
    const queueFrom = readVersion('--queue-from', values['queue-from']);
    const isLeftOut =
      values['no-queue'] === true || (from !== undefined && queueFrom === undefined);
    const queue = isLeftOut ? undefined : await QueueTables.load(schema);
    const ofQueue = queue === undefined ? '' : queueScript(queue, queueFrom);
    io.stdout.write(`${migrationScript(schema, from)}${ofQueue}`);
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
      `--queue-from is a version from which this pg-boss knows no way to its own, ${queue.latest}.`,
    );
  }
}

function readVersion(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,6}$/.test(text)) return Number(text);
  throw new DatabaseUsageError(`${option} is no version: write a number, as status says it.`);
}
