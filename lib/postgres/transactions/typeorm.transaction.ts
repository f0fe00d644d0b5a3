import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a QueryRunner of TypeORM that is used. */
interface QueryRunnerLike {
  readonly isTransactionActive: boolean;
  /** With `true`, the rows come in `records`, whatever the statement is. */
  query(text: string, values: unknown[], useStructuredResult: true): Promise<unknown>;
}

export const typeormTransaction: TransactionAdapter = {
  name: 'an EntityManager or QueryRunner of TypeORM',
  join(tx) {
    const runner = queryRunnerOf(tx);
    if (runner === undefined) return undefined;
    if (runner === null || !runner.isTransactionActive) {
      const remedy = 'give the manager of dataSource.transaction(async (manager) => …)';
      throw noTransaction('an EntityManager or QueryRunner', remedy);
    }
    return {
      async executeSql(text, values = []) {
        const result = await runner.query(text, values, true);
        const { records } = (result ?? {}) as { records?: unknown };
        return { rows: rowsOf(records ?? result) };
      },
    };
  },
};

/** @returns `null` for an EntityManager outside of a transaction, `undefined` for what is not of TypeORM */
function queryRunnerOf(tx: object): QueryRunnerLike | null | undefined {
  if ('isTransactionActive' in tx && hasMethods(tx, 'query', 'startTransaction')) {
    return tx as unknown as QueryRunnerLike;
  }
  if (!hasMethods(tx, 'query', 'getRepository')) return undefined;
  return (tx as { queryRunner?: QueryRunnerLike }).queryRunner ?? null;
}
