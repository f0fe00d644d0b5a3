import { parseArgs, type ParseArgsConfig } from 'node:util';
import { parseDuration } from '../../clock/duration.js';
import { isSchemaName, SCHEMA_RULE } from '../../postgres/boss-host.js';
import type { CommandIo } from '../command.interface.js';

/** The arguments do not make sense; the message names the remedy, and quotes no URL. */
export class DatabaseUsageError extends Error {}

/** The options that every command on a database has, as its help lists them. */
export const DATABASE_HELP = `  --url <url>            postgresql://user:password@host:5432/database; others on this machine can see
                         it, so better: the environment variable DATABASE_URL
  --schema <name>        where the tables lie; webhooks, unless given
  --no-queue             leave out the tables of pg-boss, which are included where it is installed
  --timeout <duration>   for a connection; 10s, unless given`;

/** Where the tables are. */
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

/** Options of the one that prints a script. */
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
    // What stands alone may be the URL.
    throw new DatabaseUsageError(
      code === 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL'
        ? 'There is a word that belongs to no option: give the database as --url.'
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
  if (timeout <= 0) throw new DatabaseUsageError('--timeout is no duration: write 10s or 500ms.');
  return {
    url: readUrl(values.url ?? env['DATABASE_URL']),
    schema: readSchema(values.schema),
    withQueue: values['no-queue'] !== true,
    timeout,
  };
}

function readUrl(url: string | undefined): string {
  if (url === undefined || url === '') {
    throw new DatabaseUsageError('Say which database: set DATABASE_URL, or give --url.');
  }
  if (URL.canParse(url) && /^postgres(?:ql)?:$/.test(new URL(url).protocol)) return url;
  throw new DatabaseUsageError(
    'The URL of the database is none: write postgresql://user:password@host:5432/database, and escape what is no letter in the password.',
  );
}
