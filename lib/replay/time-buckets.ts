/** No slot. */
export const NONE = -1;

/** The threads by which slots hang together in a bucket; a slot hangs in one bucket at a time. */
export class SlotLinks {
  readonly next: Int32Array;
  readonly previous: Int32Array;

  /** The system hands the pages out as they are written, so an empty store of any bound costs little. */
  constructor(slots: number) {
    this.next = new Int32Array(slots);
    this.previous = new Int32Array(slots);
  }
}

interface Bucket {
  /** The bucket's time, in widths since the epoch. */
  readonly number: number;
  /** The first slot of the ring, or NONE when it ran empty before its turn. */
  head: number;
}

/**
 * Slots in the order of their times, to the width of a bucket; within a bucket, as they were added.
 * No bucket is ever walked as a whole. Adding and removing take constant time where the bucket exists or is
 * the latest; one in between, or emptied at the front, moves the list of buckets, which is short: one entry
 * for each width of the time that is remembered.
 */
export class TimeBuckets {
  private readonly buckets = new Map<number, Bucket>();
  /** The same buckets, earliest first. */
  private readonly order: Bucket[] = [];
  /** Neighbours in time come one after the other, so the last bucket asked for is mostly the next. */
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

  /** @param at - the time the slot was added with */
  remove(slot: number, at: number): void {
    const { next, previous } = this.links;
    const bucket = this.bucketOf(at);
    const after = next[slot]!;
    const before = previous[slot]!;
    next[before] = after;
    previous[after] = before;
    if (bucket.head === slot) bucket.head = after === slot ? NONE : after;
  }

  /** The oldest slot, when every time its bucket stands for has passed. */
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

  /** The earliest bucket with a slot in it; empty ones before it are cleared away. */
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
    // New buckets are nearly always the latest, so that the search ends where it begins.
    let at = this.order.length;
    while (at > 0 && this.order[at - 1]!.number > bucket.number) at--;
    this.order.splice(at, 0, bucket);
    return bucket;
  }
}
