import type { Pool } from 'pg';
import { isWebhookError } from '../../errors/webhook.error.js';
import { databaseFailure, describeServer } from '../../postgres/database-failure.js';
import type { RunStatement } from '../../postgres/database.js';
import { rowsOf } from '../../postgres/transactions/transaction-adapters.js';
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
  command: { readonly name: string; readonly help: string; readonly options: Known },
  args: readonly string[],
  io: CommandIo,
  run: (values: Arguments<Known>['values']) => Promise<number>,
): Promise<number> {
  try {
    return await runWithArguments(command, args, io, async ({ values, positionals }) => {
      // The unexpected word may be the URL, so it is not quoted.
      if (positionals.length === 0) return run(values);
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
  const pool = await openPool(call, 2);
  try {
    return await work(async (statement, values) =>
      rowsOf(await pool.query(statement, [...values])),
    );
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
    const { code, message } = error as NodeJS.ErrnoException;
    const name = /^Cannot find package '([^']+)'/.exec(message)?.[1];
    if (code !== 'ERR_MODULE_NOT_FOUND' || name === undefined) throw error;
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
