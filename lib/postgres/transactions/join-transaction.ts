import type { Db } from 'pg-boss';
import { WebhookDeliveryError } from '../../errors/webhook.error.js';
import { drizzleTransaction } from './drizzle.transaction.js';
import { knexTransaction } from './knex.transaction.js';
import { kyselyTransaction } from './kysely.transaction.js';
import { nodePostgresTransaction } from './node-postgres.transaction.js';
import { pgliteTransaction } from './pglite.transaction.js';
import { prismaTransaction } from './prisma.transaction.js';
import type { TransactionAdapter } from './transaction-adapter.js';
import { typeormTransaction } from './typeorm.transaction.js';

/** Those that are told by more come first. */
const ON_A_SERVER: readonly TransactionAdapter[] = [
  knexTransaction,
  kyselyTransaction,
  typeormTransaction,
  prismaTransaction,
  drizzleTransaction,
  nodePostgresTransaction,
];

const EMBEDDED: readonly TransactionAdapter[] = [
  pgliteTransaction,
  kyselyTransaction,
  drizzleTransaction,
];

/**
 * Makes a transaction of the caller's usable, whichever library it comes from; told by what it has, so that none of them
 * is imported.
 *
 * @throws {@link WebhookDeliveryError} `unsupported_option`
 */
export function joinTransaction(tx: unknown): Db {
  return join(tx, ON_A_SERVER);
}

/** As {@link joinTransaction}, where the database is a PGlite. */
export function joinEmbeddedTransaction(tx: unknown): Db {
  return join(tx, EMBEDDED);
}

function join(tx: unknown, adapters: readonly TransactionAdapter[]): Db {
  // A transaction of Knex is a function.
  if ((typeof tx === 'object' && tx !== null) || typeof tx === 'function') {
    for (const adapter of adapters) {
      const db = adapter.join(tx);
      if (db !== undefined) return db;
    }
  }
  const names = adapters.map(({ name }) => name).join(', ');
  throw new WebhookDeliveryError(
    'unsupported_option',
    `tx is no transaction that this queue understands. It understands: ${names}.`,
  );
}
