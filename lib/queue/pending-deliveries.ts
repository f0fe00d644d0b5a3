import type { RememberedDelivery } from './delivery-memory.js';
import { DueHeap } from './due-heap.js';
import type { LaneLimits } from './lane-limits.js';
import { LaneSlots, type LaneSlot } from './lane-slots.js';
import type { QueueConcurrency } from './queue-options.js';

interface HeldLane {
  readonly items: DueHeap<RememberedDelivery>;
  /** When the lane may get a free slot although none of its attempts has ended, in epoch milliseconds. */
  readonly retryAt: number | undefined;
}

/** Due deliveries whose lane has no free slot. They are set aside until an attempt of the lane ends. */
class HeldLanes {
  private readonly lanes = new Map<string, HeldLane>();
  private nextRetry: number | undefined;

  /** The earliest time at which {@link releaseDue} may release something, in epoch milliseconds. */
  get retryAt(): number | undefined {
    return this.nextRetry;
  }

  hold(item: RememberedDelivery, retryAt: number | undefined): void {
    const items = this.lanes.get(item.lane)?.items ?? new DueHeap<RememberedDelivery>();
    items.push(item);
    this.lanes.set(item.lane, { items, retryAt });
    if (retryAt !== undefined) this.nextRetry = Math.min(retryAt, this.nextRetry ?? Infinity);
  }

  /** Lets {@link releaseDue} release deliveries of the lane. */
  retry(lane: string, at: number): void {
    const held = this.lanes.get(lane);
    if (held === undefined) return;
    this.lanes.set(lane, { ...held, retryAt: at });
    this.nextRetry = Math.min(at, this.nextRetry ?? Infinity);
  }

  /**
   * @returns the lane's deliveries that are due first, up to `count`, and one more: it is held again, with the time when the
   *   lane may get a slot
   */
  release(lane: string, count: number): RememberedDelivery[] {
    const held = this.lanes.get(lane);
    if (held === undefined) return [];
    const released: RememberedDelivery[] = [];
    while (released.length <= count && held.items.size > 0) released.push(held.items.pop()!);
    if (held.items.size === 0) this.lanes.delete(lane);
    return released;
  }

  releaseDue(now: number, freeSlotsOf: (lane: string) => number): RememberedDelivery[] {
    if (this.nextRetry === undefined || this.nextRetry > now) return [];
    this.nextRetry = undefined;
    const released: RememberedDelivery[] = [];
    for (const [lane, { items, retryAt }] of this.lanes) {
      if (retryAt === undefined) continue;
      if (retryAt <= now) {
        this.lanes.set(lane, { items, retryAt: undefined });
        released.push(...this.release(lane, freeSlotsOf(lane)));
      } else {
        this.nextRetry = Math.min(retryAt, this.nextRetry ?? Infinity);
      }
    }
    return released;
  }

  remove(items: ReadonlySet<RememberedDelivery>): void {
    for (const [lane, held] of this.lanes) {
      held.items.remove(items);
      if (held.items.size === 0) this.lanes.delete(lane);
    }
  }

  /** Whether a lane that holds something may get a free slot by a time although none of its attempts has ended. */
  mayReleaseBy(until: number): boolean {
    return [...this.lanes.values()].some(({ retryAt }) => (retryAt ?? Infinity) <= until);
  }

  get isEmpty(): boolean {
    return this.lanes.size === 0;
  }

  /** The lanes that hold something. */
  get names(): string[] {
    return [...this.lanes.keys()];
  }
}

/** A delivery that is being attempted. */
export interface TakenDelivery {
  readonly entry: RememberedDelivery;
  readonly slot: LaneSlot;
}

/** The deliveries that are not done, in the order in which they run. */
export class PendingDeliveries {
  private readonly waiting = new DueHeap<RememberedDelivery>();
  private readonly held = new HeldLanes();
  private readonly slots: LaneSlots;

  constructor(
    concurrency: QueueConcurrency,
    private readonly limits: LaneLimits,
  ) {
    this.slots = new LaneSlots(concurrency);
  }

  /** When {@link takeDue} next has something to do, in epoch milliseconds; `undefined` until an attempt ends. */
  get nextDue(): number | undefined {
    const due = this.waiting.peek()?.due;
    const { retryAt } = this.held;
    return due === undefined || retryAt === undefined ? (due ?? retryAt) : Math.min(due, retryAt);
  }

  /** Whether a delivery is due that can start by a time. */
  canStartBy(until: number, now: number): boolean {
    const due = this.waiting.peek()?.due ?? Infinity;
    return due <= now || this.held.mayReleaseBy(until);
  }

  runningIn(lane: string): number {
    return this.slots.runningIn(lane);
  }

  add(entry: RememberedDelivery): void {
    this.waiting.push(entry);
  }

  remove(entries: ReadonlySet<RememberedDelivery>, now: number): void {
    if (entries.size === 0) return;
    this.waiting.remove(entries);
    this.held.remove(entries);
    // A removed delivery may have been the one that its lane's others wait behind.
    for (const lane of new Set([...entries].map((entry) => entry.lane))) {
      this.releaseHeld(lane, now);
    }
  }

  /** Looks again at a lane whose limits have changed. */
  limitsChanged(lane: string, now: number): void {
    this.held.retry(lane, now);
  }

  /** Looks again at every lane whose deliveries are set aside: their times were planned before the clock was set back. */
  retryAll(now: number): void {
    for (const lane of this.held.names) this.held.retry(lane, now);
  }

  /** Restores the order after a waiting delivery became due earlier. */
  bringForward(entry: RememberedDelivery): void {
    this.waiting.raise(entry);
  }

  /**
   * Takes the delivery that is due first in a lane with a free slot. Every one that was taken is given back with
   * `release`, and added again if it is not done.
   */
  takeDue(now: number): TakenDelivery | undefined {
    this.requeue(this.held.releaseDue(now, (lane) => this.freeSlotsOf(lane, now)));
    for (let next = this.waiting.peek(); next !== undefined; next = this.waiting.peek()) {
      if (next.due > now) return undefined;
      this.waiting.pop();
      if (this.freeSlotsOf(next.lane, now) > 0) {
        this.limits.start(next.lane, now);
        return { entry: next, slot: this.slots.enter(next.lane, now) };
      } else this.held.hold(next, this.mayStartAt(next.lane, now));
    }
    return undefined;
  }

  /** Frees the slot of a run that has ended. @param wasAttempt - whether it sent a request */
  release({ entry: { lane }, slot }: TakenDelivery, now: number, wasAttempt: boolean): void {
    const wasSlow = this.slots.isSlow(lane, now);
    this.slots.leave(slot, now, wasAttempt);
    this.limits.end(lane);
    if (this.held.isEmpty) return;
    // The slow lanes share their slots, so another one may have a free slot now.
    for (const name of wasSlow ? this.held.names : [lane]) this.releaseHeld(name, now);
  }

  private releaseHeld(lane: string, now: number): void {
    this.requeue(this.held.release(lane, this.freeSlotsOf(lane, now)));
  }

  private freeSlotsOf(lane: string, now: number): number {
    const allowed = this.limits.available(lane, now);
    return allowed <= 0 ? 0 : Math.min(allowed, this.slots.freeSlotsOf(lane, now));
  }

  /** When the lane may start another attempt although none ends. */
  private mayStartAt(lane: string, now: number): number | undefined {
    const isLimited = this.limits.available(lane, now) <= 0;
    return isLimited ? this.limits.nextAt(lane, now) : this.slots.provenSlowAt(lane, now);
  }

  private requeue(entries: readonly RememberedDelivery[]): void {
    for (const entry of entries) this.waiting.push(entry);
  }
}
