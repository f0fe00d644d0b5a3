import { isWebhookError } from '../../errors/webhook.error.js';
import { databaseFailure, describeServer } from '../../postgres/database-failure.js';
import type { RunStatement } from '../../postgres/migrations/schema.migrator.js';
import { rowsOf } from '../../postgres/transactions/transaction-adapters.js';
import { type CommandIo, USAGE } from '../command.interface.js';
import { type DatabaseCall, DatabaseUsageError } from './database-call.js';

/** A database error in one line, without the URL, which contains a password. */
class DatabaseSessionError extends Error {}

/** The exit code after a database error. */
const FAILED = 2;

/** Runs a command and prints its expected errors in one line. */
export async function runDatabaseCommand(
  name: string,
  io: CommandIo,
  work: () => Promise<number>,
): Promise<number> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DatabaseUsageError) {
      io.stderr.write(`${error.message}\nSee: nestjs-webhook-token ${name} --help\n`);
      return USAGE;
    }
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
 * @throws {@link DatabaseUsageError} if `pg` is not installed
 * @throws {@link DatabaseSessionError} if the database reports an error
 */
export async function withDatabase<T>(
  call: DatabaseCall,
  work: (run: RunStatement) => Promise<T>,
): Promise<T> {
  const { Pool } = await loadDriver();
  const pool = new Pool({
    connectionString: call.url,
    max: 2,
    connectionTimeoutMillis: call.timeout,
    query_timeout: STATEMENT_TIMEOUT,
    application_name: 'nestjs-webhook-token',
  });
  // Without a listener, an idle connection that breaks would end the process.
  pool.on('error', () => {});
  try {
    return await work(async (statement, values) =>
      rowsOf(await pool.query(statement, [...values])),
    );
  } catch (error) {
    throw new DatabaseSessionError(reasonOf(error, call), { cause: error });
  } finally {
    await pool.end();
  }
}

async function loadDriver(): Promise<Pick<typeof import('pg'), 'Pool'>> {
  try {
    return (await import('pg')).default;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new DatabaseUsageError('The package pg is not installed: npm install pg');
  }
}

function reasonOf(error: unknown, { schema, url }: DatabaseCall): string {
  if (isWebhookError(error)) return error.message;
  const { code } = error as { code?: unknown };
  if (code === '42501') {
    return `The user lacks the privilege for the schema ${schema}: pass the URL of its owner, or have an administrator run CREATE SCHEMA IF NOT EXISTS ${schema} AUTHORIZATION <user>.`;
  }
  const { message } = databaseFailure('The command', error, describeServer(url));
  return `${message} Check DATABASE_URL or --url.`;
}
