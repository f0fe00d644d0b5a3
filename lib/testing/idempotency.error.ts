/** A way in which a sender, the network or a crash repeats or reorders events. */
export type IdempotencyScenario =
  'repeated' | 'concurrent' | 'crash-before-record' | 'lease-expired' | 'reordered';

/** A scenario whose outcome differs from that of one clean delivery. */
export interface IdempotencyFailure {
  readonly scenario: IdempotencyScenario;
  /** What happened, step by step. */
  readonly interleaving: readonly string[];
  /** The observed state after one clean delivery. */
  readonly expected: unknown;
  /** The observed state after the scenario. */
  readonly actual: unknown;
  /** The first difference between the two. */
  readonly difference: string;
}

/** A handler that is not idempotent. `failures` has every failing scenario, the other members describe the first one. */
export class IdempotencyError extends Error {
  override readonly name = 'IdempotencyError';
  readonly scenario: IdempotencyScenario;
  readonly interleaving: readonly string[];
  readonly expected: unknown;
  readonly actual: unknown;

  constructor(
    readonly failures: readonly [IdempotencyFailure, ...IdempotencyFailure[]],
    options?: ErrorOptions,
  ) {
    super(`Not idempotent ${failures.map(describe).join('\n')}`, options);
    const [{ scenario, interleaving, expected, actual }] = failures;
    this.scenario = scenario;
    this.interleaving = interleaving;
    this.expected = expected;
    this.actual = actual;
  }
}

function describe({ scenario, interleaving, difference }: IdempotencyFailure): string {
  const steps = interleaving.map((step, index) => `\n  ${index + 1}. ${step}`);
  return `(${scenario}): ${difference}${steps.join('')}`;
}
