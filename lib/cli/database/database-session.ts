import { databaseFailure, describeServer } from '../../postgres/database-failure.js';
import { isWebhookError } from '../../errors/webhook.error.js';
import type { RunStatement } from '../../postgres/migrations/schema.migrator.js';
import { rowsOf } from '../../postgres/transactions/query-result.js';
import { DatabaseUsageError, type DatabaseCall } from './database-call.js';

/** Milliseconds for a statement: a step may wait for another process, or for a table that is in use. */
const STATEMENT_TIMEOUT = 120_000;

/** Why a command could not do its work, in one line; without the URL, which holds a password. */
export class DatabaseSessionError extends Error {}

/**
 * Does work on a database, and closes the connection behind it.
 *
 * @throws {@link DatabaseUsageError} where `pg` is not installed
 * @throws {@link DatabaseSessionError} for whatever the server refuses
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
  // A connection that breaks while nobody uses it; without a listener it would end the process.
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
    throw new DatabaseUsageError('The package pg is not installed here: npm install pg');
  }
}

function reasonOf(error: unknown, { schema, url }: DatabaseCall): string {
  if (isWebhookError(error)) return error.message;
  const { code } = error as { code?: unknown };
  if (code === '42501') {
    return `The user may not do that in the schema ${schema}: give the URL of its owner, or let an administrator run CREATE SCHEMA IF NOT EXISTS ${schema} AUTHORIZATION <user>.`;
  }
  const { message } = databaseFailure('The command', error, describeServer(url));
  return `${message} Check DATABASE_URL, or --url.`;
}
