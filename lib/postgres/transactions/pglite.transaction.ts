import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a Transaction of PGlite that is used. */
interface PGliteTransactionLike {
  query(text: string, values?: unknown[]): Promise<unknown>;
}

export const pgliteTransaction: TransactionAdapter = {
  name: 'a Transaction of PGlite',
  join(tx) {
    if (!hasMethods(tx, 'query', 'exec')) return undefined;
    if (!hasMethods(tx, 'rollback')) {
      const remedy = 'give the tx of database.transaction(async (tx) => …)';
      throw noTransaction('the PGlite itself', remedy);
    }
    const transaction = tx as unknown as PGliteTransactionLike;
    return {
      executeSql: async (text, values) => ({ rows: rowsOf(await transaction.query(text, values)) }),
    };
  },
};
