import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a Transaction of Kysely that is used. */
interface KyselyTransactionLike {
  readonly isTransaction: boolean;
  executeQuery(query: {
    readonly sql: string;
    readonly parameters: readonly unknown[];
    readonly query: { readonly kind: 'RawNode' };
    readonly queryId: { readonly queryId: string };
  }): Promise<unknown>;
}

export const kyselyTransaction: TransactionAdapter = {
  name: 'a Transaction of Kysely',
  join(tx) {
    if (!hasMethods(tx, 'executeQuery', 'selectFrom')) return undefined;
    const trx = tx as unknown as KyselyTransactionLike;
    if (!trx.isTransaction) {
      const remedy = 'give the trx of db.transaction().execute(async (trx) => …)';
      throw noTransaction('Kysely itself', remedy);
    }
    return {
      async executeSql(sql, parameters = []) {
        const query = { kind: 'RawNode' } as const;
        const queryId = { queryId: 'nestjs-webhook-token' };
        return { rows: rowsOf(await trx.executeQuery({ sql, parameters, query, queryId })) };
      },
    };
  },
};
