/** How an endpoint has done lately: attempts and failures of the last minutes, in slices that fall out one by one. */
class FailureWindow {
  private readonly slices: { id: number; attempts: number; failures: number }[] = [];

  /**
   * @param length - milliseconds that are looked back on
   * @param count - slices they are kept in: the window is exact to one of them
   */
  constructor(
    private readonly length: number,
    private readonly count = 10,
  ) {}

  add(failed: boolean, now: number): void {
    const id = Math.floor((now * this.count) / this.length);
    let slice = this.slices.at(-1);
    if (slice?.id !== id) {
      slice = { id, attempts: 0, failures: 0 };
      this.slices.push(slice);
    }
    slice.attempts++;
    if (failed) slice.failures++;
    while (this.slices[0]!.id <= id - this.count) this.slices.shift();
  }

  /** The share of failures; 0 while there were fewer attempts than `least`. */
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

/** When an endpoint is given a rest, and for how long; milliseconds. */
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
  /** After so long without a failure, those before it prove nothing; longer than the longest wait of the schedule. */
  memory: 36 * 3_600_000,
  /** How long the others wait for the outcome of a trial, before they are looked at again. */
  trial: 5_000,
} as const;

/** What an attempt has changed. */
type CircuitChange = 'opened' | 'closed' | undefined;

/**
 * Gives an endpoint that keeps failing a rest, so that what waits for it uses up neither its attempts nor the queue's
 * slots. After the rest one attempt is let through as a trial; its outcome decides for the others.
 *
 * It knows no clock: every question brings the time, in epoch milliseconds.
 */
export class EndpointCircuit {
  private phase: 'closed' | 'open' | 'trial' = 'closed';
  private failures = 0;
  private readonly window = new FailureWindow(CIRCUIT.window);
  private rest: number = CIRCUIT.rest;
  private restsUntil = 0;
  private since: number | undefined;
  private lastFailure = -Infinity;

  /** Failed attempts since the last success. */
  get failuresInRow(): number {
    return this.failures;
  }

  /**
   * When the failures began that no success has ended yet, in epoch milliseconds; `undefined` while they are too
   * few, or too far apart, to tell.
   */
  get failingSince(): number | undefined {
    return this.failuresInRow >= CIRCUIT.failuresInRow ? this.since : undefined;
  }

  /**
   * Asks for leave to attempt. Whoever gets it must {@link record} or {@link abstain}.
   *
   * @returns `undefined` for leave; else when to ask again, in epoch milliseconds
   */
  admit(now: number): number | undefined {
    if (this.phase === 'closed') return undefined;
    // A clock that was set back makes the rest no longer.
    if (now < this.restsUntil && this.restsUntil - now <= CIRCUIT.longestRest)
      return this.restsUntil;
    // A trial that never comes back, as its process was stopped, is followed by another one.
    this.phase = 'trial';
    this.restsUntil = now + CIRCUIT.trial;
    return undefined;
  }

  /** Records how an attempt ended. */
  record(failed: boolean, now: number): CircuitChange {
    this.window.add(failed, now);
    return failed ? this.fail(now) : this.succeed();
  }

  /** Says that an attempt came to nothing that tells of the endpoint. */
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
    if (now - this.lastFailure > CIRCUIT.memory) this.since = now;
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
    // One that was under way when it opened says nothing new.
    if (this.phase === 'open' || !isBad) return undefined;
    this.open(now);
    return 'opened';
  }

  private open(now: number): void {
    this.phase = 'open';
    this.restsUntil = now + this.rest;
  }
}
