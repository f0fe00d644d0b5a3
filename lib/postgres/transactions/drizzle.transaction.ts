import { sqlLiterals } from '../sql-text.js';
import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a transaction of Drizzle that is used. */
interface DrizzleTransactionLike {
  execute(query: string): Promise<unknown>;
  /** Of node-postgres since 8.18, what it runs on: Drizzle itself does not notice that a transaction has ended. */
  readonly session?: { readonly client?: { getTransactionStatus?(): string | null } };
}

export const drizzleTransaction: TransactionAdapter = {
  name: 'a transaction of Drizzle',
  join(tx) {
    if (!hasMethods(tx, 'execute', 'select', 'transaction')) return undefined;
    if (!hasMethods(tx, 'rollback')) {
      throw noTransaction('Drizzle itself', 'give the tx of db.transaction(async (tx) => …)');
    }
    const { execute, session } = tx as unknown as DrizzleTransactionLike;
    if (session?.client?.getTransactionStatus?.() === 'I') {
      throw noTransaction('a transaction of Drizzle that has ended', 'await publish inside of it');
    }
    return {
      // Drizzle binds values only through its own tag, which would have to be imported.
      executeSql: async (text, values) => ({
        rows: rowsOf(await execute.call(tx, sqlLiterals(text, values))),
      }),
    };
  },
};
