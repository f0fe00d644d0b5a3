/** One rule of a contract; run each as one test of any framework. */
export interface ContractCase {
  readonly name: string;
  /** Rejects with an `AssertionError` if the rule is violated. */
  readonly run: () => Promise<void>;
}
