import { WebhookStoreError } from '../errors/webhook.error.js';
import { pendingReceipt } from './delivery-progress.js';
import type { KnownDelivery } from './webhook-queue.js';
import { type Due, DueHeap } from './due-heap.js';
import type { FailureReason } from './failure-reason.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** Something that goes to a destination when its time has come. */
interface Addressed extends Due {
  readonly destination: string;
}

interface Lane<Item extends Due> {
  running: number;
  readonly held: DueHeap<Item>;
}

/**
 * Bounds how many run at once to one destination: one that answers nobody would else take every slot of the
 * queue, and all others would wait behind it.
 *
 * What is due and finds its destination full is held here, out of the way. Each end of a run gives one back, so
 * that nothing is looked at more often than something starts or ends.
 */
class DestinationSlots<Item extends Addressed> {
  private readonly lanes = new Map<string, Lane<Item>>();

  constructor(private readonly perDestination: number) {}

  /** @returns whether the item may start; one that may not is held */
  start(item: Item): boolean {
    const lane = this.laneOf(item.destination);
    if (lane.running >= this.perDestination) {
      lane.held.push(item);
      return false;
    }
    lane.running++;
    return true;
  }

  /** @returns the item held for longest, which takes its turn among the others again */
  end(destination: string): Item | undefined {
    const lane = this.laneOf(destination);
    lane.running--;
    const next = lane.held.pop();
    if (lane.running === 0 && lane.held.size === 0) this.lanes.delete(destination);
    return next;
  }

  private laneOf(destination: string): Lane<Item> {
    let lane = this.lanes.get(destination);
    if (lane === undefined) {
      lane = { running: 0, held: new DueHeap() };
      this.lanes.set(destination, lane);
    }
    return lane;
  }
}

/** A delivery on its way, and where it stands. */
export interface PendingDelivery extends Addressed {
  readonly delivery: WebhookDelivery;
  readonly bytes: number;
  due: number;
  attempts: number;
  /** Throws in a row: they space the runs out, and are no attempts. */
  throws: number;
  reason?: FailureReason;
}

/** What an entry costs beside its payload: ids, strings and the places it stands in. */
const ENTRY_OVERHEAD = 512;

/** The deliveries that are not done: those that wait for their time, and those that run. */
export class PendingDeliveries {
  private readonly known = new Map<string, PendingDelivery>();
  private readonly waiting = new DueHeap<PendingDelivery>();
  private readonly slots: DestinationSlots<PendingDelivery>;
  private recorded = 0;
  private heldBytes = 0;

  constructor(
    private readonly maxPending: number,
    private readonly maxBytes: number,
    perDestination: number,
  ) {
    this.slots = new DestinationSlots(perDestination);
  }

  get size(): number {
    return this.known.size;
  }

  /** Bytes left below the bound. */
  get freeBytes(): number {
    return this.maxBytes - this.heldBytes;
  }

  /**
   * When the next one is due (epoch milliseconds); `undefined` when none waits. Those whose destination is full
   * count for nothing, until a run to it ends.
   */
  get nextDue(): number | undefined {
    return this.waiting.peek()?.due;
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
        `The delivery queue holds ${this.size} of ${this.maxPending} deliveries: publish more slowly, raise maxPending, or use a durable queue.`,
      );
    }
    const bytes = deliveries.reduce((sum, delivery) => sum + sizeOf(delivery), 0);
    if (bytes > this.freeBytes) {
      throw new WebhookStoreError(
        'store_full',
        `The delivery queue holds ${this.heldBytes} of ${this.maxBytes} bytes, and ${bytes} more do not fit: publish more slowly, raise maxBytes, or use a durable queue.`,
      );
    }
  }

  add(delivery: WebhookDelivery, due: number): void {
    const entry: PendingDelivery = {
      delivery,
      destination: destinationOf(delivery),
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
   * Takes the next one that is due and whose destination has a slot, to run it; it stays known until it is
   * removed. Every one taken is given up by `release`.
   */
  takeDue(now: number): PendingDelivery | undefined {
    for (let due = this.nextDue; due !== undefined && due <= now; due = this.nextDue) {
      const entry = this.waiting.pop()!;
      if (this.slots.start(entry)) return entry;
    }
    return undefined;
  }

  /** Its run is over: frees its slot. */
  release(entry: PendingDelivery): void {
    const next = this.slots.end(entry.destination);
    if (next !== undefined) this.waiting.push(next);
  }

  /** Makes one that waits for its time due now. @returns whether it waited; what runs or is due stays as it is */
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

/** The receiver, the endpoint, or the origin of a URL: one server, whatever paths it is called by. */
function destinationOf({ endpointId, url = '', received }: WebhookDelivery): string {
  if (received !== undefined) return `receiver ${received.receiver}`;
  if (endpointId !== undefined) return `endpoint ${endpointId}`;
  return URL.canParse(url) ? `origin ${new URL(url).origin}` : 'unknown';
}

function sizeOf(delivery: WebhookDelivery): number {
  return ENTRY_OVERHEAD + (delivery.payload.bytes?.byteLength ?? 0);
}
