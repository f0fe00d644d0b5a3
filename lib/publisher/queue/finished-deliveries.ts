import type { DeadDelivery, DeliveryReceipt } from './delivery-queue.js';

type FinishedReceipt = Extract<DeliveryReceipt, { status: 'delivered' | 'dead' }>;

interface Finished {
  readonly receipt: FinishedReceipt;
  /** Absent for a delivered one, and for a dead one whose payload had to go. */
  dead?: DeadDelivery;
  bytes: number;
}

/** What became of the last deliveries, bounded in number; dead ones are kept whole while there is room. */
export class FinishedDeliveries {
  private readonly known = new Map<string, Finished>();
  private readonly deadIds = new Set<string>();
  private heldBytes = 0;

  constructor(private readonly limit: number) {}

  /** Bytes that dead deliveries hold. */
  get bytes(): number {
    return this.heldBytes;
  }

  receipt(id: string): FinishedReceipt | undefined {
    return this.known.get(id)?.receipt;
  }

  addDelivered(id: string, attempts: number): void {
    this.add(id, { receipt: { id, status: 'delivered', attempts }, bytes: 0 });
  }

  addDead(dead: DeadDelivery, bytes: number): void {
    const { attempts, reason, delivery } = dead;
    const { id } = delivery;
    this.deadIds.add(id);
    this.heldBytes += bytes;
    this.add(id, { receipt: { id, status: 'dead', attempts, reason }, dead, bytes });
  }

  /** The dead deliveries that can be redriven, the oldest first. */
  listDead(): DeadDelivery[] {
    return [...this.deadIds].map((id) => this.known.get(id)!.dead!);
  }

  findDead(id: string): DeadDelivery | undefined {
    return this.known.get(id)?.dead;
  }

  forget(id: string): void {
    const finished = this.known.get(id);
    if (finished === undefined) return;
    this.letGo(id, finished);
    this.known.delete(id);
  }

  /** Lets the oldest dead deliveries go until at most so many bytes are held; their ids stay known. */
  shrinkTo(bytes: number): void {
    for (const id of this.deadIds) {
      if (this.heldBytes <= bytes) return;
      this.letGo(id, this.known.get(id)!);
    }
  }

  private add(id: string, finished: Finished): void {
    this.known.set(id, finished);
    if (this.known.size > this.limit) this.forget(this.known.keys().next().value!);
  }

  private letGo(id: string, finished: Finished): void {
    this.deadIds.delete(id);
    this.heldBytes -= finished.bytes;
    finished.bytes = 0;
    delete finished.dead;
  }
}
