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
    const now = this.clock.now();
    const isOver = ({ since }: CallCount): boolean => Math.abs(now - since) >= MINUTE;
    if (this.counts.size >= MAX_COUNTED) {
      for (const [counted, count] of this.counts) if (isOver(count)) this.counts.delete(counted);
    }
    const found = this.counts.get(key);
    const count = found === undefined || isOver(found) ? { since: now, calls: 0 } : found;
    this.counts.set(key, count);
    if (++count.calls <= perMinute) return undefined;
    return Math.ceil((count.since + MINUTE - now) / 1_000);
  }
}
