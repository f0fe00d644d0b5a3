import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { LaneSlots, type LaneSlot } from '../queue/lane-slots.js';
import type { QueueConcurrency } from '../queue/queue-options.js';

/** Milliseconds until a job whose lane has no free slot is fetched again. */
const SHORTEST_WAIT = 200;
const LONGEST_WAIT = 30_000;
/** Lanes whose last wait is remembered. */
const MAX_WAITS = 1_000;

interface Arriving {
  readonly lane: string;
  readonly turn: number;
  readonly resolve: (slot: LaneSlot | undefined) => void;
}

interface Waiting {
  readonly decide: (slot: LaneSlot | undefined) => void;
  readonly cancel: CancelWake;
}

/**
 * Admits jobs to their lanes. BullMQ fetches jobs regardless of lanes, so a job whose lane is full goes back to Redis for a
 * while; otherwise it would occupy a slot of the Worker.
 */
export class LaneGate {
  private readonly slots: LaneSlots;
  private arriving: Arriving[] = [];
  /** Jobs of lanes whose first attempts are running; they keep their order. */
  private readonly waiting = new Map<string, Waiting[]>();
  private readonly lastWaits = new Map<string, { readonly at: number; readonly spacing: number }>();
  /** Epoch milliseconds of the last sign that Redis was away. */
  private lastOutage = -Infinity;

  constructor(
    concurrency: QueueConcurrency,
    private readonly clock: WebhookClock,
  ) {
    this.slots = new LaneSlots(concurrency);
  }

  /**
   * @param turn - of two jobs of a lane, the one with the lower number enters first
   * @returns `undefined` if the job must go back for the time of {@link retryAt}
   */
  async enter(lane: string, turn: number): Promise<LaneSlot | undefined> {
    return new Promise((resolve) => {
      if (this.arriving.length === 0) setImmediate(() => this.admitArriving());
      this.arriving.push({ lane, turn, resolve });
    });
  }

  /** BullMQ may process the replies of one turn of the event loop in another order. */
  private admitArriving(): void {
    const jobs = this.arriving.toSorted((a, b) => a.turn - b.turn);
    this.arriving = [];
    for (const { lane, resolve } of jobs) this.admit(lane, resolve);
  }

  private admit(lane: string, decide: Waiting['decide']): void {
    const now = this.clock.now();
    const isFirst = !this.waiting.has(lane);
    if (isFirst && this.slots.hasFreeSlot(lane, now)) return decide(this.slots.enter(lane, now));
    const decidedAt = this.slots.provenSlowAt(lane, now);
    if (decidedAt === undefined && isFirst) return decide(undefined);
    const cancel = this.clock.wakeAt(decidedAt ?? now, () => this.decide(lane, true));
    this.waiting.set(lane, [...(this.waiting.get(lane) ?? []), { decide, cancel }]);
  }

  leave(slot: LaneSlot, wasAttempted: boolean): void {
    const showsPace = wasAttempted && slot.since > this.lastOutage;
    this.slots.leave(slot, this.clock.now(), showsPace);
    this.decide(slot.lane, wasAttempted);
  }

  /**
   * Records that Redis is away, or was until now. Receivers may use the same server, so the duration of an attempt that ran
   * meanwhile is not that of its lane.
   */
  recordOutage(): void {
    this.lastOutage = this.clock.now();
  }

  /**
   * When a job that was refused is fetched again, in epoch milliseconds. The jobs of one lane are spread over the time
   * that the lane needs for them, so that a backlog is not fetched again and again.
   */
  retryAt(lane: string): number {
    const now = this.clock.now();
    const spacing = (this.slots.meanOf(lane) ?? 0) / Math.max(1, this.slots.runningIn(lane));
    const last = this.lastWaits.get(lane) ?? { at: 0, spacing };
    // A lane that has become faster gets to its backlog earlier.
    const ahead = Math.max(0, last.at - now) * Math.min(1, spacing / last.spacing || 0);
    const wait = Math.min(Math.max(SHORTEST_WAIT, ahead + spacing), LONGEST_WAIT);
    const at = now + wait;
    this.lastWaits.delete(lane);
    this.lastWaits.set(lane, { at, spacing });
    if (this.lastWaits.size > MAX_WAITS) this.lastWaits.delete(this.lastWaits.keys().next().value!);
    return at;
  }

  /** Admits waiting jobs to free slots. The others go back once the lane's first attempts have shown its pace. */
  private decide(lane: string, isDecided: boolean): void {
    const now = this.clock.now();
    const waiting = this.waiting.get(lane) ?? [];
    this.waiting.delete(lane);
    const remaining = waiting.filter(({ decide, cancel }) => {
      const isAdmitted = this.slots.hasFreeSlot(lane, now);
      if (!isAdmitted && !isDecided) return true;
      cancel();
      decide(isAdmitted ? this.slots.enter(lane, now) : undefined);
      return false;
    });
    if (remaining.length > 0) this.waiting.set(lane, remaining);
  }
}
