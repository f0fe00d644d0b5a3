import { SchemaMigrator } from '../postgres/migrations/schema.migrator.js';
import { readVariables } from './arguments.js';
import type { CommandIo } from './command.interface.js';
import { DATABASE_HELP, DATABASE_OPTIONS, readDatabaseCall } from './database/database-call.js';
import { withDatabase, runDatabaseCommand } from './database/database-session.js';

export const help = `Usage: nestjs-webhook-token migrate [options]

Creates or updates the PostgreSQL tables of queues and stores. Every migration runs in its own
transaction; several processes may migrate at once. Migrations cannot be reverted. Run it as a step
of the deployment, before the new version starts.

${DATABASE_HELP}
  --json                 print JSON: { schema, applied: [{ version, name }] }

Exit code: 0 up to date, 2 wrong usage or a database error.
`;

export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'migrate', help, options: DATABASE_OPTIONS };
  return runDatabaseCommand(command, args, io, async (values) => {
    const env = await readVariables(values['env-file'], io.env);
    const call = readDatabaseCall(values, env);
    const isJson = values.json === true;
    const write = (line: string): void => void (isJson || io.stdout.write(`${line}\n`));
    const report = await withDatabase(call, async (run) => {
      const applied = await new SchemaMigrator(run, call.schema).migrate();
      for (const { version, name } of applied) write(`applied ${version} ${name}`);
      return {
        schema: call.schema,
        applied: applied.map(({ version, name }) => ({ version, name })),
      };
    });
    write(`The schema ${call.schema} is up to date.`);
    if (isJson) io.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`);
    return 0;
  });
}
