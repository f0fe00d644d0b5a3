import { WebhookStoreError } from '../errors/webhook.error.js';
import { pendingReceipt } from './delivery-progress.js';
import type { KnownDelivery } from './webhook-queue.js';
import { type Due, DueHeap } from './due-heap.js';
import type { FailureReason } from './failure-reason.js';
import { LaneSlots, type LaneSlot, type QueueConcurrency } from './lane-slots.js';
import { deliveryLane } from './stored-delivery.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

interface HeldLane {
  readonly items: DueHeap<PendingDelivery>;
  /** When the lane may get a free slot although none of its attempts has ended, in epoch milliseconds. */
  readonly retryAt: number | undefined;
}

/** Due deliveries whose lane has no free slot. They are set aside until an attempt of the lane ends. */
class HeldDeliveries {
  private readonly lanes = new Map<string, HeldLane>();
  private nextRetry: number | undefined;

  /** When {@link releaseDue} releases something, in epoch milliseconds. */
  get retryAt(): number | undefined {
    return this.nextRetry;
  }

  hold(item: PendingDelivery, retryAt: number | undefined): void {
    const items = this.lanes.get(item.lane)?.items ?? new DueHeap<PendingDelivery>();
    items.push(item);
    this.lanes.set(item.lane, { items, retryAt });
    if (retryAt !== undefined) this.nextRetry = Math.min(retryAt, this.nextRetry ?? Infinity);
  }

  /** @returns the lane's deliveries that are due first, up to `count` */
  release(lane: string, count: number): PendingDelivery[] {
    const held = this.lanes.get(lane);
    if (held === undefined) return [];
    const released: PendingDelivery[] = [];
    while (released.length < count && held.items.size > 0) released.push(held.items.pop()!);
    if (held.items.size === 0) this.lanes.delete(lane);
    return released;
  }

  releaseDue(now: number, freeSlotsOf: (lane: string) => number): PendingDelivery[] {
    if (this.nextRetry === undefined || this.nextRetry > now) return [];
    this.nextRetry = undefined;
    const released: PendingDelivery[] = [];
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

  get isEmpty(): boolean {
    return this.lanes.size === 0;
  }

  /** The lanes that hold something. */
  get names(): string[] {
    return [...this.lanes.keys()];
  }
}

/** A delivery that is not done, and its progress. */
export interface PendingDelivery extends Due {
  readonly delivery: WebhookDelivery;
  readonly lane: string;
  readonly bytes: number;
  due: number;
  attempts: number;
  /** How often in a row the handler threw. */
  throws: number;
  reason?: FailureReason;
}

/** A delivery that is being attempted. */
export interface TakenDelivery {
  readonly entry: PendingDelivery;
  readonly slot: LaneSlot;
}

/** Estimated bytes of an entry besides its payload. */
const ENTRY_OVERHEAD = 512;

/** The deliveries that are not done, in the order in which they run. */
export class PendingDeliveries {
  private readonly known = new Map<string, PendingDelivery>();
  private readonly waiting = new DueHeap<PendingDelivery>();
  private readonly held = new HeldDeliveries();
  private readonly slots: LaneSlots;
  private recorded = 0;
  private heldBytes = 0;

  constructor(
    private readonly maxPending: number,
    private readonly maxBytes: number,
    concurrency: QueueConcurrency,
  ) {
    this.slots = new LaneSlots(concurrency);
  }

  get size(): number {
    return this.known.size;
  }

  /** Bytes below the limit. */
  get freeBytes(): number {
    return this.maxBytes - this.heldBytes;
  }

  /** When {@link takeDue} next has something to do, in epoch milliseconds; `undefined` until an attempt ends. */
  get nextDue(): number | undefined {
    const due = this.waiting.peek()?.due;
    const { retryAt } = this.held;
    return due === undefined || retryAt === undefined ? (due ?? retryAt) : Math.min(due, retryAt);
  }

  receipt(id: string): KnownDelivery | undefined {
    const entry = this.known.get(id);
    return entry && pendingReceipt(entry.delivery, { ...entry, dueAt: entry.due });
  }

  /** @throws {@link WebhookStoreError} `store_full` unless all of them fit */
  requireRoomFor(deliveries: readonly WebhookDelivery[]): void {
    if (deliveries.length === 0) return;
    if (this.size + deliveries.length > this.maxPending) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue is full with ${this.maxPending} deliveries; raise maxPending, publish more slowly, or use a durable queue.`,
      );
    }
    const bytes = deliveries.reduce((sum, delivery) => sum + sizeOf(delivery), 0);
    if (bytes > this.freeBytes) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue has ${this.freeBytes} of ${this.maxBytes} bytes left, and this event needs ${bytes}; raise maxBytes, publish more slowly, or use a durable queue.`,
      );
    }
  }

  add(delivery: WebhookDelivery, due: number): void {
    const entry: PendingDelivery = {
      delivery,
      lane: deliveryLane(delivery),
      bytes: sizeOf(delivery),
      due,
      order: this.recorded++,
      attempts: 0,
      throws: 0,
    };
    this.known.set(delivery.id, entry);
    this.heldBytes += entry.bytes;
    this.waiting.push(entry);
  }

  /**
   * Takes the delivery that is due first in a lane with a free slot. It stays known until it is removed; every one that
   * was taken is given back with `release`.
   */
  takeDue(now: number): TakenDelivery | undefined {
    this.requeue(this.held.releaseDue(now, (lane) => this.slots.freeSlotsOf(lane, now)));
    for (let next = this.waiting.peek(); next !== undefined; next = this.waiting.peek()) {
      if (next.due > now) return undefined;
      this.waiting.pop();
      if (this.slots.hasFreeSlot(next.lane, now)) {
        return { entry: next, slot: this.slots.enter(next.lane, now) };
      }
      this.held.hold(next, this.slots.provenSlowAt(next.lane, now));
    }
    return undefined;
  }

  /** Frees the slot of a run that is over. @param wasAttempt - whether a request was made */
  release({ entry: { lane }, slot }: TakenDelivery, now: number, wasAttempt: boolean): void {
    const wasSlow = this.slots.isSlow(lane, now);
    this.slots.leave(slot, now, wasAttempt);
    if (this.held.isEmpty) return;
    // The slow lanes share their slots, so another one may have a free slot now.
    for (const name of wasSlow ? this.held.names : [lane]) {
      this.requeue(this.held.release(name, this.slots.freeSlotsOf(name, now)));
    }
  }

  private requeue(entries: readonly PendingDelivery[]): void {
    for (const entry of entries) this.waiting.push(entry);
  }

  /** Makes a waiting delivery due now. @returns `false` if it is unknown, running or due */
  bringForward(id: string, now: number): boolean {
    const entry = this.known.get(id);
    if (entry === undefined || entry.due <= now) return false;
    entry.due = now;
    this.waiting.raise(entry);
    return true;
  }

  putBack(entry: PendingDelivery, due: number): void {
    entry.due = due;
    this.waiting.push(entry);
  }

  remove(entry: PendingDelivery): void {
    this.known.delete(entry.delivery.id);
    this.heldBytes -= entry.bytes;
  }
}

function sizeOf(delivery: WebhookDelivery): number {
  return ENTRY_OVERHEAD + (delivery.payload.bytes?.byteLength ?? 0);
}
