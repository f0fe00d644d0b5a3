interface Schedule {
  /** When to claim from it again, in epoch milliseconds. */
  readonly at: number;
  /** Whether it may continue once an attempt ends. */
  readonly isFull?: boolean | undefined;
  /** Equal for equal limits; `undefined` if they are not known. */
  readonly limits?: string | undefined;
  /** Whether a claim from it is under way. */
  readonly isAsked?: boolean | undefined;
}

/**
 * The limited lanes with deliveries, and when this process claims from each. A delivery behind a limit is in no index that other
 * claims read, so its number does not matter.
 */
export class LimitedLanes {
  private readonly lanes = new Map<string, Schedule>();

  /** A lane that a search has found keeps its time, unless it has other limits than at the last claim. */
  found(lane: string, at: number, limits?: string): void {
    const known = this.lanes.get(lane);
    if (known === undefined) this.lanes.set(lane, { at, limits });
    else if (limits !== undefined && known.limits !== limits) this.set(lane, at);
  }

  set(lane: string, at: number): void {
    this.lanes.set(lane, { at });
  }

  /** A claim starts. @param retryAt - for lanes that it does not return */
  ask(lane: string, retryAt: number): void {
    const limits = this.lanes.get(lane)?.limits;
    this.lanes.set(lane, { at: retryAt, limits, isAsked: true });
  }

  /** A claim has ended; what was set meanwhile stays. @param at - `undefined` if no delivery is due soon */
  answer(lane: string, at: number | undefined, isFull: boolean, limits: string): void {
    if (this.lanes.get(lane)?.isAsked !== true) return;
    if (at === undefined) this.lanes.delete(lane);
    else this.lanes.set(lane, { at, isFull, limits });
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
