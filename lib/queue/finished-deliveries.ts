import type { DeadDelivery, KnownDelivery } from './delivery-queue.js';
import { LastOnes } from './last-ones.js';

type Receipt<Status extends KnownDelivery['status']> = Extract<KnownDelivery, { status: Status }>;

interface Dead {
  readonly receipt: Receipt<'dead'>;
  /** Absent where the payload had to go. */
  delivery?: DeadDelivery;
  bytes: number;
}

/**
 * What became of the last deliveries. Delivered and dead ones are bounded apart, so that success does not push
 * out what somebody still has to look at; dead ones are kept whole while there is room.
 */
export class FinishedDeliveries {
  private readonly delivered: LastOnes<Receipt<'delivered'>>;
  private readonly dead = new Map<string, Dead>();
  /** The dead ones that are whole, the oldest first. */
  private readonly whole = new Set<string>();
  /** What the whole ones hold. */
  private heldBytes = 0;

  constructor(
    maxDelivered: number,
    private readonly maxDead: number,
  ) {
    this.delivered = new LastOnes(maxDelivered);
  }

  receipt(id: string): Receipt<'delivered' | 'dead'> | undefined {
    return this.delivered.get(id) ?? this.dead.get(id)?.receipt;
  }

  addDelivered(id: string, attempts: number): void {
    this.delivered.set(id, { id, status: 'delivered', attempts });
  }

  addDead(delivery: DeadDelivery, bytes: number): void {
    const { attempts, reason } = delivery;
    const { id } = delivery.delivery;
    this.dead.set(id, { receipt: { id, status: 'dead', attempts, reason }, delivery, bytes });
    this.whole.add(id);
    this.heldBytes += bytes;
    if (this.dead.size > this.maxDead) this.forgetDead(this.dead.keys().next().value!);
  }

  /** The dead deliveries that can be redriven, the oldest first. */
  listDead(): DeadDelivery[] {
    return [...this.whole].map((id) => this.dead.get(id)!.delivery!);
  }

  findDead(id: string): DeadDelivery | undefined {
    return this.dead.get(id)?.delivery;
  }

  forgetDead(id: string): void {
    const dead = this.dead.get(id);
    if (dead === undefined) return;
    this.letGo(id, dead);
    this.dead.delete(id);
  }

  /** Lets the oldest dead deliveries go until at most so many bytes are held; their ids stay known. */
  shrinkTo(bytes: number): void {
    for (const id of this.whole) {
      if (this.heldBytes <= bytes) return;
      this.letGo(id, this.dead.get(id)!);
    }
  }

  private letGo(id: string, dead: Dead): void {
    this.whole.delete(id);
    this.heldBytes -= dead.bytes;
    dead.bytes = 0;
    delete dead.delivery;
  }
}
