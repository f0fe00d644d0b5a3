/** One clause of a contract, to be run as one test by any framework. */
export interface ContractCase {
  readonly name: string;
  /** Rejects, with an `AssertionError` that says what was expected, when the clause is violated. */
  readonly run: () => Promise<void>;
}
