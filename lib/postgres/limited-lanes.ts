interface Schedule {
  /** When to claim from it again, in epoch milliseconds. */
  readonly at: number;
  /** Whether it may continue once an attempt ends. */
  readonly isFull?: boolean | undefined;
  /** Equal for equal limits; `undefined` if they are not known. */
  readonly limits?: string | undefined;
  /** The claims from it that were not answered, with the one under way. */
  readonly asked?: number | undefined;
}

/** Milliseconds until a lane is asked again from which another process is claiming. */
const BUSY_WAIT = 20;
/** Claims after which a lane is forgotten that may have lost its limits, by a rollback; a search finds it if it has some. */
const MOST_ASKED = 10;

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

  /** A claim starts. */
  ask(lane: string, now: number): void {
    const { limits, asked = 0 } = this.lanes.get(lane) ?? {};
    if (asked + 1 >= MOST_ASKED) this.lanes.delete(lane);
    else this.lanes.set(lane, { at: now + BUSY_WAIT, limits, asked: asked + 1 });
  }

  /** A claim has ended; what was set meanwhile stays. @param at - `undefined` if no delivery is due soon */
  answer(lane: string, at: number | undefined, isFull: boolean, limits: string): void {
    const known = this.lanes.get(lane);
    if (known !== undefined && known.asked === undefined) return;
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
