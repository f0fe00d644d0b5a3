// Not the global one, which fake timers of Jest and Vitest replace.
import { setImmediate } from 'node:timers';
import { WebhookClock, type CancelWake } from '../clock/webhook-clock.js';

/** Turns of the event loop after each wake-up, so that short chains of promises and I/O settle. */
const TURNS_TO_SETTLE = 3;

interface PendingWake {
  readonly at: number;
  readonly wake: () => void;
}

/** A clock that only the test advances. */
export class TestClock extends WebhookClock {
  private readonly pending = new Set<PendingWake>();
  private time: number;

  /** @param start - milliseconds since the epoch; default: 1 January 2026, 00:00 UTC */
  constructor(start: number = Date.UTC(2026, 0, 1)) {
    super();
    this.time = start;
  }

  /** Number of scheduled wake-ups; a test can assert that none is left. */
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
   * Advances the time. Wake-ups fire in order, each at its own time, including those that are scheduled within the span. The
   * code they run may settle before the next one fires.
   *
   * @param ms - milliseconds, 0 or more
   * @throws RangeError for a negative or non-finite span; errors of a woken function
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
   * Sets the time, forwards or backwards, as a correction of the system clock would. Wake-ups that are due then fire with the
   * next `advance`, also with `advance(0)`.
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
