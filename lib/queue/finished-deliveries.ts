import { receiptFacts } from './delivery-progress.js';
import { RecentEntries } from './recent-entries.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';
import type { DeadDelivery, KnownDelivery } from './webhook-queue.js';

type Receipt<Status extends KnownDelivery['status']> = Extract<KnownDelivery, { status: Status }>;

/** As little as possible: many are remembered. */
interface Delivered {
  readonly contentDigest: string | undefined;
  readonly attempts: number;
}

interface Dead {
  readonly receipt: Receipt<'dead'>;
  /** Absent once its memory was needed. */
  delivery?: DeadDelivery;
  bytes: number;
}

/**
 * The last delivered and dead deliveries. They have separate limits, so that successes do not displace failures that
 * need attention. Dead deliveries keep their payload while memory allows.
 */
export class FinishedDeliveries {
  private readonly delivered: RecentEntries<Delivered>;
  private readonly dead = new Map<string, Dead>();
  /** Ids of dead deliveries with their payload, the oldest first. */
  private readonly restorable = new Set<string>();
  /** Bytes of their payloads. */
  private heldBytes = 0;

  constructor(
    maxDelivered: number,
    private readonly maxDead: number,
  ) {
    this.delivered = new RecentEntries(maxDelivered);
  }

  receipt(id: string): Receipt<'delivered' | 'dead'> | undefined {
    const delivered = this.delivered.get(id);
    if (delivered === undefined) return this.dead.get(id)?.receipt;
    const { contentDigest, attempts } = delivered;
    return { ...receiptFacts({ id, contentDigest }), status: 'delivered', attempts };
  }

  addDelivered({ id, contentDigest }: WebhookDelivery, attempts: number): void {
    this.delivered.set(id, { contentDigest, attempts });
  }

  addDead(delivery: DeadDelivery, bytes: number): void {
    const { attempts, reason } = delivery;
    const { id } = delivery.delivery;
    const facts = receiptFacts(delivery.delivery);
    this.dead.set(id, { receipt: { ...facts, status: 'dead', attempts, reason }, delivery, bytes });
    this.restorable.add(id);
    this.heldBytes += bytes;
    if (this.dead.size > this.maxDead) this.forgetDead(this.dead.keys().next().value!);
  }

  /** How many {@link listDead} lists. */
  get deadCount(): number {
    return this.restorable.size;
  }

  /** The dead deliveries that can be redelivered, the oldest first. */
  listDead(): DeadDelivery[] {
    return [...this.restorable].map((id) => this.dead.get(id)!.delivery!);
  }

  findDead(id: string): DeadDelivery | undefined {
    return this.dead.get(id)?.delivery;
  }

  forgetDead(id: string): void {
    const dead = this.dead.get(id);
    if (dead === undefined) return;
    this.dropPayload(id, dead);
    this.dead.delete(id);
  }

  /** Drops the payloads of the oldest dead deliveries down to `bytes`; their ids stay known. */
  shrinkTo(bytes: number): void {
    for (const id of this.restorable) {
      if (this.heldBytes <= bytes) return;
      this.dropPayload(id, this.dead.get(id)!);
    }
  }

  private dropPayload(id: string, dead: Dead): void {
    this.restorable.delete(id);
    this.heldBytes -= dead.bytes;
    dead.bytes = 0;
    delete dead.delivery;
  }
}
