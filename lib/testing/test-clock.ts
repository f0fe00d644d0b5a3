import { WebhookClock, type CancelWake } from '../clock/webhook-clock.js';

/** Turns of the event loop that code woken by the clock gets, so that short chains of I/O come to rest. */
const TURNS_TO_SETTLE = 3;

interface PendingWake {
  readonly at: number;
  readonly wake: () => void;
}

/**
 * A clock that stands still until the test moves it.
 *
 * @example
 * ```ts
 * const clock = new TestClock();
 * clock.wakeAt(clock.now() + 5_000, () => log.push('woken'));
 * await clock.advance(5_000); // log is ['woken']
 * ```
 */
export class TestClock extends WebhookClock {
  private readonly pending = new Set<PendingWake>();
  private time: number;

  /** @param start - milliseconds since the epoch; default: 1 January 2026, 00:00 UTC */
  constructor(start: number = Date.UTC(2026, 0, 1)) {
    super();
    this.time = start;
  }

  /** How many wake-ups wait: a test can show that nothing was left behind. */
  get waiting(): number {
    return this.pending.size;
  }

  override now(): number {
    return this.time;
  }

  override wakeAt(at: number, wake: () => void): CancelWake {
    const entry: PendingWake = { at, wake };
    this.pending.add(entry);
    if (at <= this.time) setImmediate(() => this.fire(entry));
    return () => void this.pending.delete(entry);
  }

  /**
   * Moves the time on. Wake-ups fire in the order of their times, each at its own time, and what they
   * set going may settle before the next one fires, including wake-ups they ask for within the span.
   *
   * @param ms - milliseconds, 0 or more
   * @throws RangeError for a negative or non-finite span; whatever a woken function throws
   */
  async advance(ms: number): Promise<void> {
    if (!(ms >= 0 && Number.isFinite(ms))) {
      throw new RangeError(
        'advance() takes 0 or more milliseconds; use set() to turn the clock back',
      );
    }
    const end = this.time + ms;
    await settle();
    for (let next = this.earliest(); next && next.at <= end; next = this.earliest()) {
      this.time = Math.max(this.time, next.at);
      this.fire(next);
      await settle();
    }
    this.time = Math.max(this.time, end);
  }

  /**
   * Puts the clock to a time, forwards or back, as a correction of a machine's clock would. Nobody is
   * woken by it: wake-ups that are due then fire with the next `advance`, also with `advance(0)`.
   *
   * @param at - milliseconds since the epoch
   */
  set(at: number): void {
    this.time = at;
  }

  private fire(entry: PendingWake): void {
    if (this.pending.delete(entry)) entry.wake();
  }

  private earliest(): PendingWake | undefined {
    let earliest: PendingWake | undefined;
    for (const entry of this.pending) {
      if (earliest === undefined || entry.at < earliest.at) earliest = entry;
    }
    return earliest;
  }
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS_TO_SETTLE; turn++) {
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
}
