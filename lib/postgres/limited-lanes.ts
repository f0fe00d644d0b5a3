interface Schedule {
  /** When to claim from it again, in epoch milliseconds. */
  readonly at: number;
  /** Whether it may continue once an attempt ends. */
  readonly isFull: boolean;
}

/**
 * The limited lanes with deliveries, and when this process claims from each. A delivery behind a limit is in no index that other
 * claims read, so its number does not matter.
 */
export class LimitedLanes {
  private readonly lanes = new Map<string, Schedule>();

  /** Adds lanes, and keeps the times of those that are known. */
  addNew(lanes: Iterable<readonly [lane: string, at: number]>): void {
    for (const [lane, at] of lanes) if (!this.lanes.has(lane)) this.set(lane, at);
  }

  set(lane: string, at: number, isFull = false): void {
    this.lanes.set(lane, { at, isFull });
  }

  delete(lane: string): void {
    this.lanes.delete(lane);
  }

  /** An attempt of a lane has ended. @returns whether it may continue */
  freed(lane: string, now: number): boolean {
    if (this.lanes.get(lane)?.isFull !== true) return false;
    this.set(lane, now);
    return true;
  }

  /** The lanes to claim from, the longest-waiting one first. */
  due(now: number): string[] {
    const due = [...this.lanes].filter(([, { at }]) => at <= now);
    return due.sort(([, a], [, b]) => a.at - b.at).map(([lane]) => lane);
  }

  /** The next time after now, in epoch milliseconds. */
  nextAfter(now: number): number {
    let next = Infinity;
    for (const { at } of this.lanes.values()) if (at > now && at < next) next = at;
    return next;
  }
}
