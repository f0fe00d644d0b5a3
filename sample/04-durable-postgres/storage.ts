import { drizzle as drizzleOnServer } from 'drizzle-orm/node-postgres';
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core';
import { drizzle as drizzleEmbedded } from 'drizzle-orm/pglite';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import { PgliteQueue, PostgresQueue, type PostgresClient } from 'nestjs-webhook-token/postgres';
import { Pool } from 'pg';

export type Database = PgDatabase<PgQueryResultHKT>;

/** One database, through the client that each part of the sample needs. */
export interface Storage {
  /** For the sample's own tables. */
  readonly database: Database;
  /** For deliveries; in the same database, so that they are recorded in the application's transactions. */
  readonly queue: WebhookQueue;
  /** For the replay store. */
  readonly client: PostgresClient;
}

/** Opens the PostgreSQL server at DATABASE_URL, or an embedded database for one process. */
export async function openStorage(): Promise<Storage> {
  const { DATABASE_URL, STORAGE_DIRECTORY } = process.env;
  return DATABASE_URL
    ? onServer(DATABASE_URL)
    : embedded(STORAGE_DIRECTORY ?? 'build/04-durable-postgres');
}

function onServer(connectionString: string): Storage {
  const pool = new Pool({ connectionString });
  // Without these listeners, a broken connection would end the process. The first is for idle connections, the second for
  // connections in a transaction.
  pool.on('error', () => {});
  pool.on('connect', (connection) => connection.on('error', () => {}));
  return {
    database: drizzleOnServer(pool),
    // Short lease for the sample: attempts of a killed process are repeated after ten seconds.
    queue: new PostgresQueue({ pool, pollInterval: '250ms', lease: '10s' }),
    client: pool,
  };
}

async function embedded(directory: string): Promise<Storage> {
  const queue = new PgliteQueue({ directory, pollInterval: '250ms' });
  const client = await queue.database();
  return { database: drizzleEmbedded(client), queue, client };
}
