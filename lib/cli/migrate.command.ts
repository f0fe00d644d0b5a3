import { SchemaMigrator } from '../postgres/migrations/schema.migrator.js';
import { printResult } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import {
  DATABASE_HELP,
  DATABASE_OPTIONS as options,
  readDatabaseCall,
  requireOptionsOnly,
  withDatabase,
} from './database.js';

export const help = `Usage: nestjs-webhook-token migrate [options]

Creates or updates the PostgreSQL tables of queues and stores. Every migration runs in its own
transaction; several processes may migrate at once. Migrations cannot be reverted. Run it as a step
of the deployment, before the new version starts.

${DATABASE_HELP}
  --json                 print JSON: { schema, applied: [{ version, name }] }

Exit code: 0 up to date, 2 wrong usage or a database error.
`;

export { options };

export async function run(
  { values, positionals }: Arguments<typeof options>,
  io: CommandIo,
): Promise<number> {
  requireOptionsOnly(positionals);
  const call = await readDatabaseCall(values, io);
  const { schema } = call;
  const applied = await withDatabase(call, async (run) =>
    new SchemaMigrator(run, schema).migrate(),
  );
  const steps = applied.map(({ version, name }) => ({ version, name }));
  const lines = steps.map(({ version, name }) => `applied ${version} ${name}\n`);
  const text = `${lines.join('')}The schema ${schema} is up to date.\n`;
  printResult(io, values.json, { schema, applied: steps }, text);
  return 0;
}
