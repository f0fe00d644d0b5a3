import type { Pool } from 'pg';
import { isWebhookError, missingPackageOf } from '../../errors/webhook.error.js';
import { databaseFailure, describeServer } from '../../postgres/database-failure.js';
import type { PostgresClient, RunStatement } from '../../postgres/database.js';
import { SchemaMigrator } from '../../postgres/migrations/schema.migrator.js';
import { statementsOn } from '../../postgres/transactions.js';
import { type Arguments, type Options, runWithArguments, UsageError } from '../arguments.js';
import type { CommandIo } from '../command.interface.js';
import type { DatabaseCall } from './database-call.js';

/** A database error in one line, without the URL, which contains a password. */
class DatabaseSessionError extends Error {}

/** The exit code after a database error. */
const FAILED = 2;

/**
 * Runs a command on a database: parses its arguments, prints its help, and reports errors in one line.
 *
 * @returns the exit code of `run`, 0 for help, 2 for wrong usage or a database error
 */
export async function runDatabaseCommand<Known extends Options>(
  command: {
    readonly name: string;
    readonly help: string;
    readonly options: Known;
    /** The most arguments without an option; default none. */
    readonly positionals?: number;
  },
  args: readonly string[],
  io: CommandIo,
  run: (
    values: Arguments<Known>['values'],
    positionals: Arguments<Known>['positionals'],
  ) => Promise<number>,
): Promise<number> {
  try {
    return await runWithArguments(command, args, io, async ({ values, positionals }) => {
      // The unexpected word may be the URL, so it is not quoted.
      if (positionals.length <= (command.positionals ?? 0)) return run(values, positionals);
      throw new UsageError('An argument without an option: pass the database as --database-url.');
    });
  } catch (error) {
    if (!(error instanceof DatabaseSessionError)) throw error;
    io.stderr.write(`${error.message}\n`);
    return FAILED;
  }
}

/** Milliseconds for a statement; a migration may wait for another process or for a table lock. */
const STATEMENT_TIMEOUT = 120_000;

/**
 * Runs work on a database and closes the connection afterwards.
 *
 * @throws {@link UsageError} if `pg` is not installed
 * @throws {@link DatabaseSessionError} if the database reports an error
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
 * @param work - gets the connection, as a client of a store and to run statements on
 * @throws as {@link withDatabase}
 */
export async function withTransaction<T>(
  call: DatabaseCall,
  work: (
    client: PostgresClient,
    run: RunStatement,
  ) => Promise<{ readonly commit: boolean; readonly result: T }>,
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
      const { commit, result } = await work(client, statementsOn(client));
      await connection.query(commit ? 'COMMIT' : 'ROLLBACK');
      return result;
    } finally {
      // Closing the connection ends a transaction that was not committed.
      connection.release(true);
    }
  });
}

/** Refuses a schema without the tables of this version. */
export async function requireTables(run: RunStatement, { schema }: DatabaseCall): Promise<void> {
  const states = await new SchemaMigrator(run, schema).states();
  if (states.some(({ appliedAt }) => appliedAt === undefined)) {
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
    throw new DatabaseSessionError(reasonOf(error, call), { cause: error });
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
