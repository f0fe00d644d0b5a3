import { drizzle as drizzleOnServer } from 'drizzle-orm/node-postgres';
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core';
import { drizzle as drizzleEmbedded } from 'drizzle-orm/pglite';
import type { WebhookQueue } from 'nestjs-webhook-token';
import { PgliteQueue, PgBossQueue, type PostgresClient } from 'nestjs-webhook-token/postgres';
import { Pool } from 'pg';

export type Database = PgDatabase<PgQueryResultHKT>;

/** One database, as each part of the sample wants it. */
export interface Storage {
  /** For tables of our own. */
  readonly database: Database;
  /** For deliveries: in the same database, so that they can be recorded in its transactions. */
  readonly queue: WebhookQueue;
  /** For the replay store. */
  readonly client: PostgresClient;
}

/** With DATABASE_URL a PostgreSQL server, else an embedded one, which is for one process. */
export async function openStorage(): Promise<Storage> {
  const { DATABASE_URL, STORAGE_DIRECTORY } = process.env;
  return DATABASE_URL
    ? onServer(DATABASE_URL)
    : embedded(STORAGE_DIRECTORY ?? 'build/04-durable-postgres');
}

function onServer(connectionString: string): Storage {
  const pool = new Pool({ connectionString });
  // A connection that breaks is replaced; without these listeners it would end the process. The pool's own is for those that
  // nobody uses: a transaction has its connection to itself.
  pool.on('error', () => {});
  pool.on('connect', (connection) => connection.on('error', () => {}));
  return {
    database: drizzleOnServer(pool),
    // A short lease: the deliveries of a killed process run again after ten seconds.
    queue: new PgBossQueue({ pool, pollInterval: '250ms', lease: '10s' }),
    client: pool,
  };
}

async function embedded(directory: string): Promise<Storage> {
  const queue = new PgliteQueue({ directory, pollInterval: '250ms' });
  const client = await queue.database();
  return { database: drizzleEmbedded(client), queue, client };
}
