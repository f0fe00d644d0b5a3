import { scriptSteps } from '../postgres/migrations/schema.migrator.js';
import { migrationSteps } from '../postgres/migrations/migration-steps.js';
import { printResult, UsageError } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { readSchema, requireOptionsOnly } from './database.js';

export const help = `Usage: nestjs-webhook-token sql [options]

Prints the migrations as SQL for your own migration tool. Does not connect to a database.

  --schema <name>        schema of the tables; default webhooks
  --from <version>       current version, as status shows it; prints only later migrations
  --json                 print JSON: { schema, steps: [{ version, name, sql }] }

Exit code: 0 printed, 2 wrong usage.
`;

export const options = {
  schema: { type: 'string' },
  from: { type: 'string' },
  json: { type: 'boolean' },
} as const;

export async function run(
  { values, positionals }: Arguments<typeof options>,
  io: CommandIo,
): Promise<number> {
  requireOptionsOnly(positionals);
  const schema = readSchema(values.schema);
  const from = readVersion(values.from);
  if (from !== undefined && from > migrationSteps(schema).length) {
    throw new UsageError('--from is newer than the latest migration of this package.');
  }
  const steps = scriptSteps(schema, from);
  printResult(io, values.json, { schema, steps }, steps.map(({ sql }) => sql).join(''));
  return 0;
}

function readVersion(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d{1,6}$/.test(value)) return Number(value);
  throw new UsageError('--from must be a version number, as status shows it.');
}
