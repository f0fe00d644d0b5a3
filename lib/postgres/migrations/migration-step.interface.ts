/** One step of the schema, from the version before it to its own. Steps are only added: one that was published never changes. */
export interface MigrationStep {
  /** 1 for the first. */
  readonly version: number;
  /** What it makes, in a word. */
  readonly name: string;
  /** SQL, in order; run in one transaction, with the steps before it in place. */
  readonly statements: readonly string[];
}
