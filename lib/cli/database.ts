import type { Pool } from 'pg';
import { isWebhookError, missingPackageOf } from '../errors/webhook.error.js';
import { databaseFailure, describeServer } from '../postgres/database-failure.js';
import type { PostgresClient, RunStatement } from '../postgres/database.js';
import { SchemaMigrator } from '../postgres/migrations/schema.migrator.js';
import { isSchemaName, SCHEMA_RULE } from '../postgres/sql-text.js';
import { statementsOn } from '../postgres/transactions.js';
import { CommandError, readTimeout, readVariables, UsageError } from './arguments.js';
import type { Arguments, CommandIo, Options } from './command.interface.js';

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
  /** The environment, with the variables of `--env-file`. */
  readonly env: CommandIo['env'];
}

/** Options of every command that connects. */
export const DATABASE_OPTIONS = {
  'database-url': { type: 'string' },
  'env-file': { type: 'string' },
  schema: { type: 'string' },
  timeout: { type: 'string' },
  json: { type: 'boolean' },
} as const satisfies Options;

/** @throws {@link UsageError} */
export function readSchema(schema = 'webhooks'): string {
  if (isSchemaName(schema)) return schema;
  throw new UsageError(`--schema ${SCHEMA_RULE}.`);
}

/** @throws {@link UsageError} */
export async function readDatabaseCall(
  values: Arguments<typeof DATABASE_OPTIONS>['values'],
  io: CommandIo,
): Promise<DatabaseCall> {
  const env = await readVariables(values['env-file'], io.env);
  return {
    timeout: readTimeout(values.timeout ?? '10s'),
    url: readUrl(values['database-url'] ?? env['DATABASE_URL']),
    schema: readSchema(values.schema),
    env,
  };
}

/** Refuses arguments without an option. The unexpected word may be the URL, so it is not quoted. */
export function requireOptionsOnly(positionals: readonly string[]): void {
  if (positionals.length === 0) return;
  throw new UsageError('An argument without an option: pass the database as --database-url.');
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

/** Milliseconds for a statement; a migration may wait for another process or for a table lock. */
const STATEMENT_TIMEOUT = 120_000;

/**
 * Runs work on a database and closes the connection afterwards.
 *
 * @throws {@link UsageError} if `pg` is not installed
 * @throws {@link CommandError} if the database reports an error, in one line without the URL, which contains a password
 */
export async function withDatabase<T>(
  call: DatabaseCall,
  work: (run: RunStatement) => Promise<T>,
): Promise<T> {
  return withPool(call, async (pool) => work(statementsOn(pool)));
}

/**
 * Runs work in one transaction, and commits it if the work says so.
 *
 * @param work - gets the connection, as a client of a store
 * @throws as {@link withDatabase}
 */
export async function withTransaction<T>(
  call: DatabaseCall,
  work: (client: PostgresClient) => Promise<{ readonly commit: boolean; readonly result: T }>,
): Promise<T> {
  return withPool(call, async (pool) => {
    const connection = await pool.connect();
    // Without a listener, a connection that breaks would end the process; its next statement reports the error.
    connection.on('error', () => {});
    try {
      await connection.query('BEGIN');
      const client: PostgresClient = {
        query: async (text, values) => connection.query(text, values),
      };
      const { commit, result } = await work(client);
      await connection.query(commit ? 'COMMIT' : 'ROLLBACK');
      return result;
    } finally {
      // Closing the connection ends a transaction that was not committed.
      connection.release(true);
    }
  });
}

/** Refuses a schema without the tables of this version, and one that a newer version has changed so that this one must not use it. */
export async function requireTables(run: RunStatement, { schema }: DatabaseCall): Promise<void> {
  try {
    await new SchemaMigrator(run, schema).requireCurrent();
  } catch (error) {
    if (!isWebhookError(error, 'schema_behind')) throw error;
    throw new UsageError(
      `The schema ${schema} does not have the tables that this version of the package needs: pass the --schema of the application, or run nestjs-webhook-token migrate.`,
    );
  }
}

async function withPool<T>(call: DatabaseCall, work: (pool: Pool) => Promise<T>): Promise<T> {
  const pool = await openPool(call, 2);
  try {
    return await work(pool);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new CommandError(reasonOf(error, call), { cause: error });
  } finally {
    await pool.end();
  }
}

/**
 * Opens a pool, which the caller ends.
 *
 * @param max - connections
 * @throws {@link UsageError} if `pg` is not installed
 */
export async function openPool({ url, timeout }: DatabaseCall, max: number): Promise<Pool> {
  const { Pool } = (await installed(async () => import('pg'))).default;
  const pool = new Pool({
    connectionString: url,
    max,
    connectionTimeoutMillis: timeout,
    query_timeout: STATEMENT_TIMEOUT,
    application_name: 'nestjs-webhook-token',
  });
  // Without a listener, an idle connection that breaks would end the process.
  pool.on('error', () => {});
  return pool;
}

/**
 * Loads a module that needs an optional package.
 *
 * @throws {@link UsageError} if the package is not installed
 */
export async function installed<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    const name = missingPackageOf(error);
    if (name === undefined) throw error;
    throw new UsageError(`The package ${name} is not installed: npm install ${name}`);
  }
}

function reasonOf(error: unknown, { schema, url }: DatabaseCall): string {
  if (isWebhookError(error)) return error.message;
  const { code } = error as { code?: unknown };
  if (code === '42501') {
    return `The user lacks the privilege for the schema ${schema}: pass the URL of its owner, or have an administrator run CREATE SCHEMA IF NOT EXISTS ${schema} AUTHORIZATION <user>.`;
  }
  const { message } = databaseFailure('The command', error, describeServer(url));
  return `${message} Check DATABASE_URL or --database-url.`;
}
