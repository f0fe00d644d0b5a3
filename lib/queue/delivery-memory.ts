import { WebhookStoreError } from '../errors/webhook.error.js';
import { matches } from './delivery-list.js';
import type { LaneLimits } from './lane-limits.js';
import {
  deliveryLane,
  type DeliveryAttempt,
  type DeliveryKeyState,
  type DeliveryRecord,
  type DeliveryRun,
  type DeliveryStatus,
  type FailureReason,
  type WebhookDelivery,
  takesTurn,
  stateAfterRun,
} from './webhook-delivery.js';
import type { DeliveryFilter } from './webhook-queue.js';

/** Stored attempts per delivery. */
const MAX_ATTEMPTS = 20;

export class RememberedDelivery {
  readonly lane: string;
  status: DeliveryStatus = 'pending';
  attempts: readonly DeliveryAttempt[] = [];
  /** Its part in the order of its key; absent without one, and once it has had its turn. */
  turn: { readonly key: string; readonly isWaiting: boolean } | undefined;
  private blocksKey = false;
  private attemptCount = 0;
  /** How often in a row the handler threw. */
  private throws = 0;
  private reason: FailureReason | undefined;
  updatedAt: number;
  private payloadDropped: true | undefined;
  /** Whether it is being attempted. */
  isRunning = false;

  constructor(
    public delivery: WebhookDelivery,
    public due: number,
    public order: number,
    private readonly limits: Pick<LaneLimits, 'has'>,
  ) {
    this.lane = deliveryLane(delivery);
    this.updatedAt = delivery.createdAt;
  }

  get nextAttempt(): number {
    return this.attemptCount + 1;
  }

  get isRestorable(): boolean {
    return this.payloadDropped === undefined;
  }

  /** Whether later deliveries of its key wait for it. */
  get holdsKey(): boolean {
    return this.status === 'pending' || (this.status === 'dead' && this.blocksKey);
  }

  /** Of its payload and its answers. */
  get bytes(): number {
    const payload = this.delivery.payload.bytes?.byteLength ?? 0;
    return this.attempts.reduce(
      (sum, { answer }) => sum + (answer === undefined ? 0 : Buffer.byteLength(answer)),
      payload,
    );
  }

  record(): DeliveryRecord {
    const { delivery, status, attemptCount, reason, updatedAt, due, payloadDropped } = this;
    const isWaiting = status === 'pending' && !this.isRunning;
    return {
      delivery,
      status,
      attempts: attemptCount,
      nextAttemptAt: status === 'pending' ? due : undefined,
      reason,
      updatedAt,
      payloadDropped,
      isLimited: isWaiting && this.limits.has(this.lane) ? true : undefined,
      keyState: this.keyState,
    };
  }

  get keyState(): DeliveryKeyState | undefined {
    if (this.turn === undefined || this.status === 'delivered') return undefined;
    if (this.status === 'dead') return 'blocking';
    return this.turn.isWaiting ? 'waiting' : undefined;
  }

  /** @param run - `undefined` if the handler threw */
  apply(run: DeliveryRun | undefined, now: number): void {
    const { attemptCount: attempts, throws, reason } = this;
    const state = stateAfterRun({ attempts, throws, reason }, run, now);
    this.status = state.status;
    this.attemptCount = state.attempts;
    this.throws = state.throws;
    this.reason = state.reason;
    this.due = state.due ?? this.due;
    this.blocksKey = state.blocksKey === true;
    if (run !== undefined) this.updatedAt = now;
    if (run?.attempt !== undefined) {
      this.attempts = [...this.attempts, run.attempt].slice(-MAX_ATTEMPTS);
    }
  }

  /** Makes a dead delivery pending, from the first attempt on. */
  startRound(now: number, order: number): void {
    this.status = 'pending';
    this.attemptCount = 0;
    this.throws = 0;
    this.reason = undefined;
    this.due = now;
    this.order = order;
    this.updatedAt = now;
  }

  dropPayload(): void {
    this.delivery = {
      ...this.delivery,
      payload: { ...this.delivery.payload, bytes: undefined },
    };
    this.payloadDropped = true;
  }

  /** Drops the payload, and the answers of the attempts. */
  dropContent(): void {
    this.dropPayload();
    this.attempts = this.attempts.map((attempt) => ({ ...attempt, answer: undefined }));
  }
}

/** Estimated bytes of a pending delivery besides its payload. */
const OVERHEAD = 512;
/** The part of all bytes that finished deliveries may take. */
const FINISHED_SHARE = 0.25;
/** The part by which a group may exceed its bound before the oldest are removed, so that each removal is cheap. */
const SLACK = 1 / 8;

/** The deliveries of one status, in the order in which they got it, each with the bytes that are counted for it. */
class StatusGroup {
  readonly entries = new Map<RememberedDelivery, number>();
  /** Those whose payload has not been dropped. */
  readonly restorable = new Set<RememberedDelivery>();
  bytes = 0;

  /** Adds a delivery, or counts it again in its place. */
  put(entry: RememberedDelivery): void {
    const { bytes } = entry;
    this.bytes += bytes - (this.entries.get(entry) ?? 0);
    this.entries.set(entry, bytes);
    if (entry.isRestorable) this.restorable.add(entry);
    else this.restorable.delete(entry);
  }

  delete(entry: RememberedDelivery): void {
    this.bytes -= this.entries.get(entry) ?? 0;
    this.entries.delete(entry);
    this.restorable.delete(entry);
  }
}

/**
 * All deliveries that a process remembers. Pending ones are bounded: a full memory refuses new ones. Delivered and dead
 * ones have separate bounds, so that successes do not displace failures that need attention; the oldest are removed
 * first, and their payloads before anything is refused. Dead ones that block their ordering key are kept.
 */
export class DeliveryMemory {
  private readonly byId = new Map<string, RememberedDelivery>();
  private readonly groups = {
    pending: new StatusGroup(),
    delivered: new StatusGroup(),
    dead: new StatusGroup(),
  };
  private readonly order: KeyOrder;
  private recorded = 0;

  /** @param onTurn - called with a delivery that has waited for its ordering key, and holds it now */
  constructor(
    private readonly bounds: {
      readonly maxPending: number;
      readonly maxFinished: number;
      readonly maxBytes: number;
    },
    private readonly limits: Pick<LaneLimits, 'has'>,
    onTurn: (entry: RememberedDelivery) => void,
  ) {
    this.order = new KeyOrder(onTurn);
  }

  get pendingCount(): number {
    return this.groups.pending.entries.size;
  }

  find(id: string): RememberedDelivery | undefined {
    return this.byId.get(id);
  }

  /** All of them, in the order in which they were recorded. */
  all(): Iterable<RememberedDelivery> {
    return this.byId.values();
  }

  /** @throws {@link WebhookStoreError} `store_full` unless all of them fit */
  requireRoomFor(deliveries: readonly WebhookDelivery[]): void {
    if (deliveries.length === 0) return;
    const { maxPending, maxBytes } = this.bounds;
    if (this.pendingCount + deliveries.length > maxPending) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue is full with ${maxPending} deliveries; raise maxPending, publish more slowly, or use a durable queue.`,
      );
    }
    const free = maxBytes - this.pendingBytes;
    const bytes = deliveries.reduce(
      (sum, { payload }) => sum + OVERHEAD + (payload.bytes?.byteLength ?? 0),
      0,
    );
    if (bytes > free) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue has ${free} of ${maxBytes} bytes left, and this event needs ${bytes}; raise maxBytes, publish more slowly, or use a durable queue.`,
      );
    }
  }

  add(delivery: WebhookDelivery, due: number, now: number): RememberedDelivery {
    const entry = new RememberedDelivery(delivery, due, this.recorded++, this.limits);
    this.order.enter(entry, now);
    this.byId.set(delivery.id, entry);
    this.update(entry);
    return entry;
  }

  /** Counts a delivery again after its state has changed, and removes what exceeds the bounds. */
  update(entry: RememberedDelivery): void {
    const group = this.groups[entry.status];
    for (const other of Object.values(this.groups)) if (other !== group) other.delete(entry);
    group.put(entry);
    if (!entry.holdsKey) this.order.leave(entry);
    this.shrink();
  }

  /** Lets the later deliveries of its key continue. @returns whether a dead delivery blocked them */
  skip(entry: RememberedDelivery): boolean {
    if (entry.status !== 'dead' || entry.turn === undefined) return false;
    this.order.leave(entry);
    return true;
  }

  /** Moves the due times of all pending deliveries, which keep their order. */
  shift(ms: number): void {
    for (const entry of this.groups.pending.entries.keys()) {
      if (!entry.isRunning) entry.due += ms;
    }
  }

  /** Makes a dead delivery pending. */
  revive(entry: RememberedDelivery, now: number): void {
    entry.startRound(now, this.recorded++);
    this.update(entry);
  }

  prune(before: number, tenant: string | undefined): number {
    const { delivered, dead } = this.groups;
    const old = [...delivered.entries.keys(), ...dead.entries.keys()].filter((entry) =>
      matches(entry, { until: before, tenant }),
    );
    for (const entry of old) this.forget(entry);
    return old.length;
  }

  /**
   * Deletes deliveries in any state, except those that are being attempted: their requests may still be sent.
   *
   * @returns those that it deleted
   */
  erase(filter: DeliveryFilter): ReadonlySet<RememberedDelivery> {
    const erased = [...this.byId.values()].filter(
      (entry) => !entry.isRunning && matches(entry, filter),
    );
    for (const entry of erased) this.forget(entry);
    return new Set(erased);
  }

  /** Drops the payloads of deliveries that were delivered until a time. */
  dropPayloads(until: number): void {
    const { delivered } = this.groups;
    for (const entry of delivered.restorable) {
      if (entry.updatedAt > until || entry.delivery.payload.bytes === undefined) continue;
      entry.dropPayload();
      delivered.put(entry);
    }
  }

  private get pendingBytes(): number {
    return this.groups.pending.bytes + OVERHEAD * this.pendingCount;
  }

  private get finishedBytes(): number {
    return this.groups.delivered.bytes + this.groups.dead.bytes;
  }

  private forget(entry: RememberedDelivery): void {
    this.byId.delete(entry.delivery.id);
    this.order.leave(entry);
    this.groups[entry.status].delete(entry);
  }

  private shrink(): void {
    const { maxFinished, maxBytes } = this.bounds;
    const { delivered, dead } = this.groups;
    for (const { entries } of [delivered, dead]) {
      if (entries.size <= maxFinished + Math.floor(maxFinished * SLACK)) continue;
      for (const entry of entries.keys()) {
        if (entries.size <= maxFinished) break;
        if (entry.keyState !== 'blocking') this.forget(entry);
      }
    }
    const bound = Math.min(maxBytes * FINISHED_SHARE, maxBytes - this.pendingBytes);
    if (this.finishedBytes <= bound) return;
    for (const group of [delivered, dead]) {
      for (const entry of group.restorable) {
        if (this.finishedBytes <= bound * (1 - SLACK)) return;
        if (entry.keyState === 'blocking') continue;
        entry.dropContent();
        group.put(entry);
      }
    }
  }
}

/** Keys without unfinished deliveries whose last number is remembered. */
const MAX_IDLE_KEYS = 10_000;

interface KeyTurns {
  /** The deliveries that hold the key or wait for it, in their order. */
  readonly entries: Set<RememberedDelivery>;
  lastNumber: number;
}

/** The order of the deliveries with an ordering key: who holds its key, and who waits for it. */
class KeyOrder {
  private readonly keys = new Map<string, KeyTurns>();
  /** The last numbers of keys without unfinished deliveries; those that have been idle the longest come first. */
  private readonly idle = new Map<string, number>();

  /** @param onTurn - called with a delivery whose turn comes after it has waited */
  constructor(private readonly onTurn: (entry: RememberedDelivery) => void) {}

  /** Numbers a delivery with an ordering key, and adds it at the end of its key's order, unless it has had its turn before. */
  enter(entry: RememberedDelivery, now: number): void {
    const { delivery, lane } = entry;
    if (!takesTurn(delivery)) return;
    // No lane contains a line break.
    const key = `${lane}\n${delivery.orderingKey}`;
    let turns = this.keys.get(key);
    if (turns === undefined) {
      // A series starts with the time, so that numbers never fall, even if the last one was forgotten.
      turns = { entries: new Set(), lastNumber: this.idle.get(key) ?? now };
      this.keys.set(key, turns);
      this.idle.delete(key);
    }
    entry.delivery = { ...delivery, sequence: ++turns.lastNumber };
    entry.turn = { key, isWaiting: turns.entries.size > 0 };
    turns.entries.add(entry);
  }

  /** Ends the turn of a delivery, and starts the next one. */
  leave(entry: RememberedDelivery): void {
    if (entry.turn === undefined) return;
    const { key } = entry.turn;
    const turns = this.keys.get(key)!;
    entry.turn = undefined;
    turns.entries.delete(entry);
    const [next] = turns.entries;
    if (next === undefined) this.rest(key, turns);
    else if (next.turn!.isWaiting) {
      next.turn = { key, isWaiting: false };
      this.onTurn(next);
    }
  }

  /** Remembers the last number of a key, and forgets that of the one which has been idle the longest. */
  private rest(key: string, { lastNumber }: KeyTurns): void {
    this.keys.delete(key);
    this.idle.set(key, lastNumber);
    if (this.idle.size <= MAX_IDLE_KEYS) return;
    const [oldest] = this.idle.keys();
    this.idle.delete(oldest!);
  }
}
