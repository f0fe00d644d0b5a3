/** Work in a transaction, and the handle of it that applications pass around. */
export type TransactionWork = (tx: any) => Promise<unknown>;

/** A library for PostgreSQL, as applications use it. */
export interface TransactionLibrary {
  readonly name: string;
  /** Runs work in a transaction: committed when it resolves, rolled back when it rejects. */
  readonly transaction: (work: TransactionWork) => Promise<unknown>;
  /** Runs work under a savepoint of the transaction. */
  readonly nested: (tx: any, work: TransactionWork) => Promise<unknown>;
  /** Runs a statement without values in the transaction. */
  readonly run: (tx: any, statement: string) => PromiseLike<unknown>;
  /** Objects of the library that are not transactions, by name. */
  readonly outside: Readonly<Record<string, unknown>>;
  readonly close: () => Promise<unknown>;
}

/** A savepoint in SQL, for libraries without a method for it. */
export async function underSavepoint(
  run: (statement: string) => PromiseLike<unknown>,
  work: () => Promise<unknown>,
): Promise<void> {
  await run('SAVEPOINT inner_work');
  try {
    await work();
    await run('RELEASE SAVEPOINT inner_work');
  } catch (error) {
    await run('ROLLBACK TO SAVEPOINT inner_work');
    throw error;
  }
}
