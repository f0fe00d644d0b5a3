import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a Client or PoolClient of node-postgres that is used. */
interface ClientLike {
  query(text: string, values?: unknown[]): Promise<unknown>;
  /** Since node-postgres 8.18: `I` where no transaction is open. */
  getTransactionStatus?(): string | null;
}

export const nodePostgresTransaction: TransactionAdapter = {
  name: 'a Client or PoolClient of node-postgres',
  join(tx) {
    if (!hasMethods(tx, 'query', 'connect')) return undefined;
    const isPool = 'totalCount' in tx;
    if (!isPool && !hasMethods(tx, 'escapeLiteral')) return undefined;
    const client = tx as unknown as ClientLike;
    if (isPool || client.getTransactionStatus?.() === 'I') {
      throw noTransaction(
        isPool ? 'a Pool of node-postgres' : 'a Client of node-postgres',
        "await client.query('BEGIN') on a client of the pool, and give that client",
      );
    }
    return {
      executeSql: async (text, values) => ({ rows: rowsOf(await client.query(text, values)) }),
    };
  },
};
