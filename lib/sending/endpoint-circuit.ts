/** When the circuit opens, and for how long; durations in milliseconds. */
export const CIRCUIT = {
  /** Failures in a row after which it opens. */
  failuresInRow: 5,
  /** Or this share of at least so many attempts within the window. */
  failureShare: 0.7,
  leastAttempts: 10,
  window: 5 * 60_000,
  /** The first rest; each trial that fails doubles it. */
  rest: 30_000,
  longestRest: 5 * 60_000,
  /** Failures that are further apart than this are unrelated; longer than the longest wait of the schedule. */
  memory: 36 * 3_600_000,
  /** How long the other deliveries wait for the result of a trial. */
  trial: 5_000,
} as const;

type CircuitPhase = 'closed' | 'open' | 'trial';

type CircuitChange = 'opened' | 'closed' | undefined;

/**
 * A circuit breaker: while an endpoint keeps failing, its deliveries wait, and use up neither attempts nor slots of the queue.
 * After each rest, one attempt is admitted as a trial; its result decides about the others.
 *
 * It has no clock: the caller passes the time, in epoch milliseconds.
 */
export class EndpointCircuit {
  private phase: CircuitPhase = 'closed';
  private failures = 0;
  private readonly window = new FailureWindow(CIRCUIT.window);
  private rest: number = CIRCUIT.rest;
  private restsUntil = 0;
  private since: number | undefined;
  private lastFailure = -Infinity;

  /** `trial`: open, and an attempt may close it. */
  get state(): CircuitPhase {
    return this.phase;
  }

  /** When the next trial is admitted, in epoch milliseconds; `undefined` while it is closed. */
  get nextTrialAt(): number | undefined {
    return this.phase === 'closed' ? undefined : this.restsUntil;
  }

  /** Failed attempts since the last success. */
  get failuresInRow(): number {
    return this.failures;
  }

  /**
   * When the failures in a row began, in epoch milliseconds; `undefined` if there are too few failures, or if the last one is
   * too long ago.
   */
  failingSince(now: number): number | undefined {
    const isOver = now - this.lastFailure > CIRCUIT.memory;
    return this.failures >= CIRCUIT.failuresInRow && !isOver ? this.since : undefined;
  }

  /**
   * Asks to make an attempt. If admitted, the caller must {@link note} its result or {@link abstain}.
   *
   * @returns `undefined` if admitted; otherwise when to ask again, in epoch milliseconds
   */
  admit(now: number): number | undefined {
    if (this.phase === 'closed') return undefined;
    // A clock that is set back must not extend the rest.
    if (now < this.restsUntil && this.restsUntil - now <= CIRCUIT.longestRest)
      return this.restsUntil;
    // If a trial never reports, for example because its process was stopped, another one follows.
    this.phase = 'trial';
    this.restsUntil = now + CIRCUIT.trial;
    return undefined;
  }

  /** Notes the result of an attempt. */
  note(failed: boolean, now: number): CircuitChange {
    this.window.add(failed, now);
    return failed ? this.fail(now) : this.succeed();
  }

  /** Ends an attempt whose result says nothing about the endpoint. */
  abstain(now: number): void {
    if (this.phase === 'trial') this.restsUntil = now;
  }

  private succeed(): CircuitChange {
    const wasOpen = this.phase !== 'closed';
    this.phase = 'closed';
    this.failures = 0;
    this.rest = CIRCUIT.rest;
    this.since = undefined;
    if (!wasOpen) return undefined;
    this.window.clear();
    return 'closed';
  }

  private fail(now: number): CircuitChange {
    if (now - this.lastFailure > CIRCUIT.memory) {
      this.failures = 0;
      this.since = now;
    }
    this.lastFailure = now;
    this.failures++;
    this.since ??= now;
    if (this.phase === 'trial') {
      this.rest = Math.min(this.rest * 2, CIRCUIT.longestRest);
      this.open(now);
      return undefined;
    }
    const isBad =
      this.failuresInRow >= CIRCUIT.failuresInRow ||
      this.window.share(CIRCUIT.leastAttempts) >= CIRCUIT.failureShare;
    // An attempt that was under way when the circuit opened adds nothing.
    if (this.phase === 'open' || !isBad) return undefined;
    this.open(now);
    return 'opened';
  }

  private open(now: number): void {
    this.phase = 'open';
    this.restsUntil = now + this.rest;
  }
}

/** Counts recent attempts and failures of an endpoint in time slices; old slices are dropped one by one. */
class FailureWindow {
  private readonly slices: { id: number; attempts: number; failures: number }[] = [];

  /**
   * @param length - of the window, in milliseconds
   * @param count - number of slices; the window is exact to one slice
   */
  constructor(
    private readonly length: number,
    private readonly count = 10,
  ) {}

  add(failed: boolean, now: number): void {
    const id = Math.floor((now * this.count) / this.length);
    // The clock was set back: what lies ahead of it would never become old.
    while ((this.slices.at(-1)?.id ?? id) > id) this.slices.pop();
    let slice = this.slices.at(-1);
    if (slice?.id !== id) {
      slice = { id, attempts: 0, failures: 0 };
      this.slices.push(slice);
    }
    slice.attempts++;
    if (failed) slice.failures++;
    while (this.slices[0]!.id <= id - this.count) this.slices.shift();
  }

  /** The share of failures; 0 with fewer attempts than `least`. */
  share(least: number): number {
    let attempts = 0;
    let failures = 0;
    for (const slice of this.slices) {
      attempts += slice.attempts;
      failures += slice.failures;
    }
    return attempts < least ? 0 : failures / attempts;
  }

  clear(): void {
    this.slices.length = 0;
  }
}
