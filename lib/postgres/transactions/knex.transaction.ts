import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/** The part of a Transaction of Knex that is used. */
interface KnexTransactionLike {
  raw(text: string, bindings: unknown[]): PromiseLike<unknown>;
}

export const knexTransaction: TransactionAdapter = {
  name: 'a Transaction of Knex',
  join(tx) {
    if (typeof tx !== 'function' || !hasMethods(tx, 'raw', 'transaction')) return undefined;
    if (!hasMethods(tx, 'commit', 'rollback')) {
      throw noTransaction('Knex itself', 'give the trx of knex.transaction(async (trx) => …)');
    }
    const trx = tx as unknown as KnexTransactionLike;
    return {
      async executeSql(text, values = []) {
        const { sql, bindings } = questionMarks(text, values);
        try {
          return { rows: rowsOf(await trx.raw(sql, bindings)) };
        } catch (error) {
          throw withoutStatement(error);
        }
      },
    };
  },
};

/** Knex binds by `?`, and has a question mark that is none written as `\?`. */
function questionMarks(
  text: string,
  values: readonly unknown[],
): { sql: string; bindings: unknown[] } {
  const bindings: unknown[] = [];
  const sql = text.replace(/\?|\$(\d+)/g, (_, index: string | undefined) => {
    if (index === undefined) return '\\?';
    bindings.push(values[Number(index) - 1]);
    return '?';
  });
  return { sql, bindings };
}

/** Knex puts the statement, with its values, before the message of the driver's error. */
function withoutStatement(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const message = error.message.split(' - ').at(-1);
  return Object.assign(new Error(message), { code: (error as { code?: unknown }).code });
}
