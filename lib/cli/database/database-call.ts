import { parseArgs, type ParseArgsConfig } from 'node:util';
import { parseDuration } from '../../clock/duration.js';
import { isSchemaName, SCHEMA_RULE } from '../../postgres/boss-host.js';
import type { CommandIo } from '../command.interface.js';

/** Wrong arguments. The message says what to do, and never quotes a URL. */
export class DatabaseUsageError extends Error {}

/** The help on the options of the commands that connect. */
export const DATABASE_HELP = `  --url <url>            postgresql://user:password@host:5432/database; visible to other users, so
                         prefer the environment variable DATABASE_URL
  --schema <name>        schema of the tables; default webhooks
  --no-queue             omit the pg-boss tables, which are included if pg-boss is installed
  --timeout <duration>   for a connection; default 10s`;

/** The database, and which of its tables. */
export interface DatabaseCall {
  readonly url: string;
  readonly schema: string;
  readonly withQueue: boolean;
  /** Milliseconds. */
  readonly timeout: number;
}

const SCHEMA_OPTIONS = {
  schema: { type: 'string' },
  'no-queue': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const satisfies ParseArgsConfig['options'];

/** Options of the commands that connect. */
export const DATABASE_OPTIONS = {
  ...SCHEMA_OPTIONS,
  url: { type: 'string' },
  timeout: { type: 'string' },
  json: { type: 'boolean' },
} as const satisfies ParseArgsConfig['options'];

/** Options of the command that prints a script. */
export const SCRIPT_OPTIONS = {
  ...SCHEMA_OPTIONS,
  from: { type: 'string' },
  'queue-from': { type: 'string' },
} as const satisfies ParseArgsConfig['options'];

/** @throws {@link DatabaseUsageError} */
export function readOptions<Options extends NonNullable<ParseArgsConfig['options']>>(
  args: readonly string[],
  options: Options,
): ReturnType<typeof parseArgs<{ args: string[]; options: Options }>>['values'] {
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    // The unexpected word may be the URL, so it is not quoted.
    throw new DatabaseUsageError(
      code === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL'
        ? 'An argument without an option: pass the database as --url.'
        : message,
    );
  }
}

/** @throws {@link DatabaseUsageError} */
export function readSchema(schema = 'webhooks'): string {
  if (isSchemaName(schema)) return schema;
  throw new DatabaseUsageError(`--schema ${SCHEMA_RULE}.`);
}

/** @throws {@link DatabaseUsageError} */
export function readDatabaseCall(
  values: {
    readonly url?: string | undefined;
    readonly schema?: string | undefined;
    readonly 'no-queue'?: boolean | undefined;
    readonly timeout?: string | undefined;
  },
  env: CommandIo['env'],
): DatabaseCall {
  const timeout = parseDuration(values.timeout ?? '10s') ?? 0;
  if (timeout <= 0)
    throw new DatabaseUsageError('--timeout must be a positive duration, such as 10s or 500ms.');
  return {
    url: readUrl(values.url ?? env['DATABASE_URL']),
    schema: readSchema(values.schema),
    withQueue: values['no-queue'] !== true,
    timeout,
  };
}

function readUrl(url: string | undefined): string {
  if (url === undefined || url === '') {
    throw new DatabaseUsageError('The database is missing: set DATABASE_URL or pass --url.');
  }
  if (URL.canParse(url) && /^postgres(?:ql)?:$/.test(new URL(url).protocol)) return url;
  throw new DatabaseUsageError(
    'The database URL is not valid: write postgresql://user:password@host:5432/database, and percent-encode special characters of the password.',
  );
}
