import { MINUTE } from './duration.js';
import type { WebhookClock } from './webhook-clock.js';

/** Keys whose calls are counted before old counts are removed. */
const MAX_COUNTED = 1_000;

/** Calls since the start of a minute. */
interface CallCount {
  readonly since: number;
  calls: number;
}

/** Counts calls by key in windows of a minute, in this process. */
export class CallRate {
  private readonly counts = new Map<string, CallCount>();

  constructor(private readonly clock: WebhookClock) {}

  /** Counts a call. Returns the seconds until the next one is allowed if there were too many in this minute. */
  waitAfter(key: string, perMinute: number): number | undefined {
    return this.take(key, 1, perMinute) === 1 ? undefined : this.waitOf(key);
  }

  /** Counts as many of these calls as are allowed in this minute, and returns how many those are. */
  take(key: string, calls: number, perMinute: number): number {
    const count = this.countOf(key);
    const allowed = Math.min(calls, perMinute - count.calls);
    count.calls += allowed;
    return allowed;
  }

  /** Uncounts calls that {@link take} counted at a time, and that were not made. Those of an earlier minute no longer count. */
  giveBack(key: string, calls: number, takenAt: number): void {
    const count = this.counts.get(key);
    if (count !== undefined && count.since <= takenAt) count.calls -= calls;
  }

  /** Seconds until the count of a key starts again at zero. */
  waitOf(key: string): number {
    return Math.ceil((this.countOf(key).since + MINUTE - this.clock.now()) / 1_000);
  }

  private countOf(key: string): CallCount {
    const now = this.clock.now();
    const isOver = ({ since }: CallCount): boolean => Math.abs(now - since) >= MINUTE;
    if (this.counts.size >= MAX_COUNTED) {
      for (const [counted, count] of this.counts) if (isOver(count)) this.counts.delete(counted);
    }
    const found = this.counts.get(key);
    const count = found === undefined || isOver(found) ? { since: now, calls: 0 } : found;
    this.counts.set(key, count);
    return count;
  }
}
