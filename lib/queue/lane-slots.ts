import type { QueueConcurrency } from './queue-options.js';

/** Milliseconds. A lane is slow if its attempts take longer than this on average. */
export const SLOW_ATTEMPT = 1_000;
/** A lane also is slow while an attempt has run for so much longer than the mean, and for so many milliseconds. */
const STALL_FACTOR = 4;
const LEAST_STALL = 300;
/** Slots of a lane whose first attempts have not ended, so that a backlog for a dead endpoint takes few slots. */
export const UNPROVEN_SLOTS = 2;
/** The part of all slots that slow lanes may take together. */
const SLOW_SHARE = 0.2;
/** The same while no other lane is in use. */
const SLOW_SHARE_ALONE = 0.8;
/** Milliseconds without an attempt in a fast lane after which no fast lane counts as in use. */
const ALONE_AFTER = 60_000;
/** Milliseconds for which a slow lane that was refused a slot counts among those that share the slow slots. */
const CONTENDS_FOR = 60_000;
/** Idle lanes whose mean duration is remembered. Slow ones are not forgotten for fast ones: all would take unshared slots again. */
const MAX_IDLE_FAST = 200;
const MAX_IDLE_SLOW = 1_000;

interface Lane {
  readonly running: Set<LaneSlot>;
  /** Moving average in milliseconds; `undefined` until an attempt has ended. */
  mean: number | undefined;
}

export interface LaneSlot {
  readonly lane: string;
  /** Epoch milliseconds. */
  readonly since: number;
}

/**
 * Divides a queue's slots among its lanes, one lane per endpoint, so that neither a backlog nor slowness of some endpoints
 * holds up the others:
 *
 * - A lane has at most `concurrencyPerDestination` slots, and two until its first attempt has ended.
 * - Slow lanes share a fifth of all slots, equally. While only slow lanes are in use they share four fifths.
 *
 * It reads no clock: times are passed in, as epoch milliseconds.
 */
export class LaneSlots {
  /** Lanes with a running attempt. */
  private readonly busy = new Map<string, Lane>();
  /** Mean durations of lanes without a running attempt; the first of each became idle first. */
  private readonly idleFast = new Map<string, number>();
  private readonly idleSlow = new Map<string, number>();
  /** Slow lanes that were refused a slot and have got none since, with the time of the refusal. */
  private readonly refused = new Map<string, number>();
  private lastFastStart = -Infinity;

  constructor(protected readonly concurrency: QueueConcurrency) {}

  hasFreeSlot(lane: string, now: number): boolean {
    return this.freeSlotsOf(lane, now) > 0;
  }

  freeSlotsOf(lane: string, now: number): number {
    const own = this.ownFreeSlots(lane, now);
    if (own <= 0 || !this.isSlow(lane, now)) return own;
    const shared = Math.min(own, this.sharedFreeSlots(lane, now));
    if (shared <= 0) this.refused.set(lane, now);
    return shared;
  }

  /** When an unproven lane turns out to be slow, and may get more than the slots for unproven ones. */
  provenSlowAt(lane: string, now: number): number | undefined {
    const [oldest] = this.busy.get(lane)?.running ?? [];
    if (oldest === undefined || this.meanOf(lane) !== undefined) return undefined;
    const at = oldest.since + SLOW_ATTEMPT + 1;
    return at > now ? at : undefined;
  }

  /** Milliseconds that an attempt takes on average. */
  meanOf(lane: string): number | undefined {
    return this.busy.get(lane)?.mean ?? this.idleFast.get(lane) ?? this.idleSlow.get(lane);
  }

  enter(lane: string, now: number): LaneSlot {
    let known = this.busy.get(lane);
    if (known === undefined) {
      known = { running: new Set(), mean: this.meanOf(lane) };
      this.busy.set(lane, known);
    }
    const slot = { lane, since: now };
    known.running.add(slot);
    if (this.refused.size > 0) this.refused.delete(lane);
    if (!isSlowMean(known.mean)) this.lastFastStart = now;
    return slot;
  }

  /** @param wasAttempt - `false` for a run that made no request: it says nothing about the endpoint */
  leave(slot: LaneSlot, now: number, wasAttempt: boolean): void {
    const lane = this.busy.get(slot.lane)!;
    lane.running.delete(slot);
    if (wasAttempt) {
      const duration = Math.max(0, now - slot.since);
      lane.mean = lane.mean === undefined ? duration : (lane.mean + duration) / 2;
    }
    if (lane.running.size > 0) return;
    this.busy.delete(slot.lane);
    if (lane.mean === undefined) return;
    this.idleFast.delete(slot.lane);
    this.idleSlow.delete(slot.lane);
    const [idle, most] = isSlowMean(lane.mean)
      ? [this.idleSlow, MAX_IDLE_SLOW]
      : [this.idleFast, MAX_IDLE_FAST];
    idle.set(slot.lane, lane.mean);
    if (idle.size > most) idle.delete(first(idle)!);
  }

  isSlow(lane: string, now: number): boolean {
    if (isSlowMean(this.meanOf(lane))) return true;
    const busy = this.busy.get(lane);
    const oldest = first(busy?.running);
    return oldest !== undefined && now - oldest.since > stallAfter(busy!.mean);
  }

  /** The free slots of a lane, whether it is slow or not. */
  protected ownFreeSlots(lane: string, now: number): number {
    const { concurrencyPerDestination } = this.concurrency;
    const isUnproven = this.meanOf(lane) === undefined && !this.isSlow(lane, now);
    const limit = isUnproven
      ? Math.min(UNPROVEN_SLOTS, concurrencyPerDestination)
      : concurrencyPerDestination;
    return limit - this.runningIn(lane);
  }

  /** Every lane that is busy or remembered. */
  protected names(): string[] {
    return [...new Set([...this.busy.keys(), ...this.idleFast.keys(), ...this.idleSlow.keys()])];
  }

  private sharedFreeSlots(lane: string, now: number): number {
    const slots = this.slowSlots(now);
    for (const [name, since] of this.refused) {
      if (now - since > CONTENDS_FOR) this.refused.delete(name);
    }
    const contenders = new Set([lane, ...this.refused.keys()]);
    let taken = 0;
    for (const [name, { running }] of this.busy) {
      if (!this.isSlow(name, now)) continue;
      contenders.add(name);
      taken += running.size;
    }
    const share = Math.ceil(slots / contenders.size) - this.runningIn(lane);
    return Math.min(share, slots - taken);
  }

  /** The slots that slow lanes may take together. */
  protected slowSlots(now: number): number {
    const isAlone = now - this.lastFastStart > ALONE_AFTER;
    return Math.ceil(this.concurrency.concurrency * (isAlone ? SLOW_SHARE_ALONE : SLOW_SHARE));
  }

  runningIn(lane: string): number {
    return this.busy.get(lane)?.running.size ?? 0;
  }
}

/** Milliseconds after which an attempt shows that its lane has become slow. */
function stallAfter(mean: number | undefined): number {
  if (mean === undefined) return SLOW_ATTEMPT;
  return Math.min(SLOW_ATTEMPT, Math.max(LEAST_STALL, STALL_FACTOR * mean));
}

function isSlowMean(mean: number | undefined): mean is number {
  return mean !== undefined && mean > SLOW_ATTEMPT;
}

function first<Item>(items: Map<Item, unknown> | Set<Item> | undefined): Item | undefined {
  const next = items?.keys().next();
  return next?.done === false ? next.value : undefined;
}
