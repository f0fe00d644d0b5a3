import { rowsOf } from './query-result.js';
import { hasMethods, noTransaction, type TransactionAdapter } from './transaction-adapter.js';

/**
 * Writes the values into a statement in the place of `$1`, `$2`, for a library that takes statements without values.
 *
 * @throws TypeError for a value that is neither a text nor a number
 */
export function sqlLiterals(text: string, values: readonly unknown[] = []): string {
  return text.replace(/\$(\d+)/g, (_, index: string) => literal(values[Number(index) - 1]));
}

/**
 * Escaped so that it means the same whatever `standard_conforming_strings` is.
 *
 * @see PostgreSQL, "4.1.2.2. String Constants With C-Style Escapes"
 */
function literal(value: unknown): string {
  if (typeof value === 'number' && Number.isFinite(value)) return `'${value}'`;
  if (typeof value !== 'string') throw new TypeError('Only texts and numbers have a literal.');
  const quoted = value.replaceAll("'", "''");
  return quoted.includes('\\') ? ` E'${quoted.replaceAll('\\', '\\\\')}'` : `'${quoted}'`;
}

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
