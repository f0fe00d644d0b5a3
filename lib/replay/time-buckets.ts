/** No slot. */
export const NONE = -1;

/** The links of circular lists of slots; a slot is in one list at a time. */
export class SlotLinks {
  readonly next: Int32Array;
  readonly previous: Int32Array;

  /** The system allocates pages when they are written, so an empty store of any size costs little. */
  constructor(slots: number) {
    this.next = new Int32Array(slots);
    this.previous = new Int32Array(slots);
  }
}

interface Bucket {
  /** The bucket's time, in widths since the epoch. */
  readonly number: number;
  /** The first slot of the list, or NONE if it is empty. */
  head: number;
}

/**
 * Slots ordered by time, with the precision of a bucket.
 *
 * Adding and removing a slot take constant time, unless a bucket must be inserted in the middle or removed at the front; that moves a
 * short list with one entry per bucket width of the time kept.
 */
export class TimeBuckets {
  private readonly buckets = new Map<number, Bucket>();
  /** The same buckets, the earliest first. */
  private readonly order: Bucket[] = [];
  /** Consecutive calls mostly use the same bucket. */
  private recent: Bucket | undefined;

  /** @param width - milliseconds */
  constructor(
    private readonly width: number,
    private readonly links: SlotLinks,
  ) {}

  add(slot: number, at: number): void {
    const { next, previous } = this.links;
    const bucket = this.bucketOf(at);
    const { head } = bucket;
    if (head === NONE) {
      bucket.head = next[slot] = previous[slot] = slot;
      return;
    }
    const last = previous[head]!;
    next[last] = slot;
    previous[slot] = last;
    next[slot] = head;
    previous[head] = slot;
  }

  /** @param at - as passed to `add` */
  remove(slot: number, at: number): void {
    const { next, previous } = this.links;
    const bucket = this.bucketOf(at);
    const after = next[slot]!;
    const before = previous[slot]!;
    next[before] = after;
    previous[after] = before;
    if (bucket.head === slot) bucket.head = after === slot ? NONE : after;
  }

  /** The oldest slot, if the whole time of its bucket has passed. */
  firstOverdue(now: number): number {
    const bucket = this.firstBucket();
    return bucket !== undefined && (bucket.number + 1) * this.width <= now ? bucket.head : NONE;
  }

  /** The slots of the oldest bucket, up to `limit` of them. */
  firstFew(limit: number): number[] {
    const slots: number[] = [];
    const first = this.firstBucket()?.head ?? NONE;
    let slot = first;
    while (slot !== NONE && slots.push(slot) < limit) {
      slot = this.links.next[slot]!;
      if (slot === first) break;
    }
    return slots;
  }

  /** The earliest bucket that is not empty; empty ones before it are removed. */
  private firstBucket(): Bucket | undefined {
    while (this.order[0]?.head === NONE) {
      const { number } = this.order.shift()!;
      this.buckets.delete(number);
      if (this.recent?.number === number) this.recent = undefined;
    }
    return this.order[0];
  }

  private bucketOf(at: number): Bucket {
    const number = Math.floor(at / this.width);
    if (this.recent?.number !== number) {
      this.recent = this.buckets.get(number) ?? this.enlist({ number, head: NONE });
    }
    return this.recent;
  }

  private enlist(bucket: Bucket): Bucket {
    this.buckets.set(bucket.number, bucket);
    // New buckets are nearly always the latest, so the search ends at once.
    let at = this.order.length;
    while (at > 0 && this.order[at - 1]!.number > bucket.number) at--;
    this.order.splice(at, 0, bucket);
    return bucket;
  }
}
