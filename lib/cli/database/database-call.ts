import { isSchemaName, SCHEMA_RULE } from '../../postgres/sql-text.js';
import { type Options, readTimeout, UsageError } from '../arguments.js';
import type { CommandIo } from '../command.interface.js';

/** The help on the options of every command that connects. */
export const DATABASE_HELP = `  --database-url <url>   postgresql://user:password@host:5432/database; visible to other users, so
                         prefer the environment variable DATABASE_URL
  --env-file <file>      file with this variable, such as .env
  --schema <name>        schema of the tables; default webhooks
  --timeout <duration>   for a connection; default 10s`;

export interface DatabaseCall {
  readonly url: string;
  readonly schema: string;
  /** Milliseconds. */
  readonly timeout: number;
}

/** Options of every command that connects. */
export const DATABASE_OPTIONS = {
  'database-url': { type: 'string' },
  'env-file': { type: 'string' },
  schema: { type: 'string' },
  timeout: { type: 'string' },
  json: { type: 'boolean' },
} as const satisfies Options;

export const SCRIPT_OPTIONS = {
  schema: DATABASE_OPTIONS.schema,
  json: DATABASE_OPTIONS.json,
  from: { type: 'string' },
} as const satisfies Options;

/** @throws {@link UsageError} */
export function readSchema(schema = 'webhooks'): string {
  if (isSchemaName(schema)) return schema;
  throw new UsageError(`--schema ${SCHEMA_RULE}.`);
}

/** @throws {@link UsageError} */
export function readDatabaseCall(
  values: {
    readonly 'database-url'?: string | undefined;
    readonly schema?: string | undefined;
    readonly timeout?: string | undefined;
  },
  env: CommandIo['env'],
): DatabaseCall {
  return {
    timeout: readTimeout(values.timeout ?? '10s'),
    url: readUrl(values['database-url'] ?? env['DATABASE_URL']),
    schema: readSchema(values.schema),
  };
}

function readUrl(url: string | undefined): string {
  if (url === undefined || url === '') {
    throw new UsageError('The database is missing: set DATABASE_URL or pass --database-url.');
  }
  if (URL.canParse(url) && /^postgres(?:ql)?:$/.test(new URL(url).protocol)) return url;
  throw new UsageError(
    'The database URL is not valid: write postgresql://user:password@host:5432/database, and percent-encode special characters of the password.',
  );
}
