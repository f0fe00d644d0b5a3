import { rowsOf } from './query-result.js';
import { sqlLiterals } from './sql-literals.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a transaction of Drizzle that is used. */
interface DrizzleTransactionLike {
  execute(query: string): Promise<unknown>;
}

export const drizzleTransaction: TransactionAdapter = {
  name: 'a transaction of Drizzle',
  join(tx) {
    if (!hasMethods(tx, 'execute', 'select', 'transaction')) return undefined;
    if (!hasMethods(tx, 'rollback')) {
      throw noTransaction('Drizzle itself', 'give the tx of db.transaction(async (tx) => …)');
    }
    const { execute } = tx as unknown as DrizzleTransactionLike;
    return {
      // Drizzle binds values only through its own tag, which would have to be imported.
      executeSql: async (text, values) => ({
        rows: rowsOf(await execute.call(tx, sqlLiterals(text, values))),
      }),
    };
  },
};
