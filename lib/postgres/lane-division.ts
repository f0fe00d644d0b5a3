import { LaneSlots, UNPROVEN_SLOTS } from '../queue/lane-slots.js';

/** Free slots by lane, and of each lane that is not listed. */
export interface FreeSlots {
  readonly lanes: Record<string, number>;
  readonly elsewhere: number;
}

/**
 * Divides the free slots among all lanes before a claim. A claim takes the deliveries of many lanes at once, so it needs their slots
 * in advance.
 */
export class LaneDivision extends LaneSlots {
  /**
   * The free slots of every lane that is busy or remembered, and of any other lane.
   *
   * @param due - the {@link contendingLanes} with due deliveries, if any contend; the others get what those leave
   */
  freeSlots(now: number, due?: ReadonlySet<string>): FreeSlots {
    const { concurrencyPerDestination } = this.concurrency;
    const names = this.names();
    const slow = names.filter((lane) => this.isSlow(lane, now));
    const lanes = Object.fromEntries(names.map((lane) => [lane, this.ownFreeSlots(lane, now)]));
    this.divideSlowSlots(slow, lanes, now, due);
    return { lanes, elsewhere: Math.min(UNPROVEN_SLOTS, concurrencyPerDestination) };
  }

  /** The slow lanes that could take a slot, if there are free ones, but not for each of them. */
  contendingLanes(now: number): readonly string[] {
    const slow = this.names().filter((lane) => this.isSlow(lane, now));
    const free = this.freeSlowSlots(slow, now);
    const contending = slow.filter((lane) => this.ownFreeSlots(lane, now) > 0);
    return free > 0 && free < contending.length ? contending : [];
  }

  /** Gives the slow slots out one by one, each to the lane that has the fewest; lanes with due deliveries come first. */
  private divideSlowSlots(
    slow: readonly string[],
    lanes: Record<string, number>,
    now: number,
    due: ReadonlySet<string> | undefined,
  ): void {
    let left = this.freeSlowSlots(slow, now);
    const given = new Map(slow.map((lane) => [lane, 0]));
    const total = (lane: string): number => this.runningIn(lane) + given.get(lane)!;
    for (const contenders of [slow.filter((lane) => due?.has(lane)), slow]) {
      for (; left > 0; left--) {
        const open = contenders.filter((lane) => given.get(lane)! < lanes[lane]!);
        const [next] = open.sort((a, b) => total(a) - total(b));
        if (next === undefined) break;
        given.set(next, given.get(next)! + 1);
      }
    }
    for (const lane of slow) lanes[lane] = given.get(lane)!;
  }

  private freeSlowSlots(slow: readonly string[], now: number): number {
    return slow.reduce((free, lane) => free - this.runningIn(lane), this.slowSlots(now));
  }
}
