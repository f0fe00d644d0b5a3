/** A pause until a time, which can be extended. It reads no clock: times are passed in, as epoch milliseconds. */
export class Pause {
  private end = -Infinity;
  private length = 0;

  /** When it ends, or has ended. */
  until(now: number): number {
    // A clock that is set back must not extend it beyond the length that was asked for.
    this.end = Math.min(this.end, now + this.length);
    // Nor revive it.
    if (this.end <= now) this.length = 0;
    return this.end;
  }

  /** Lets it last until this time, unless it ends later. */
  extend(end: number, now: number): void {
    if (end <= this.until(now)) return;
    this.end = end;
    this.length = end - now;
  }
}
