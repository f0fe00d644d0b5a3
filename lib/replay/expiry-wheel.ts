interface Bucket<Entry> {
  readonly entries: Set<Entry>;
  /** Position of {@link ExpiryWheel.take}; a new iterator would step over every entry that was removed before. */
  cursor?: Iterator<Entry>;
}

/**
 * Entries by the time at which they are due, in buckets of a fixed width.
 *
 * Adding and removing an entry take constant time, unless a bucket is inserted in the middle; that moves a list with one
 * number per bucket.
 */
export class ExpiryWheel<Entry> {
  private readonly buckets = new Map<number, Bucket<Entry>>();
  /** Numbers of the buckets, the earliest first: their time in widths since the epoch. */
  private readonly order: number[] = [];

  /** @param width - milliseconds */
  constructor(private readonly width: number) {}

  add(entry: Entry, due: number): void {
    const number = Math.floor(due / this.width);
    const bucket = this.buckets.get(number) ?? this.insert(number);
    bucket.entries.add(entry);
  }

  /** @param due - as passed to `add` */
  remove(entry: Entry, due: number): void {
    this.buckets.get(Math.floor(due / this.width))?.entries.delete(entry);
  }

  /** Removes and returns an entry of the earliest bucket. */
  take(): Entry | undefined {
    const number = this.earliest();
    if (number === undefined) return undefined;
    const bucket = this.buckets.get(number)!;
    bucket.cursor ??= bucket.entries.values();
    const { value } = bucket.cursor.next() as { value: Entry };
    bucket.entries.delete(value);
    return value;
  }

  /** As {@link take}, if the whole time of the bucket has passed. */
  takeOverdue(now: number): Entry | undefined {
    const number = this.earliest();
    return number !== undefined && (number + 1) * this.width <= now ? this.take() : undefined;
  }

  /** The number of the earliest bucket with an entry; empty ones before it are removed. */
  private earliest(): number | undefined {
    for (;;) {
      const [number] = this.order;
      if (number === undefined || this.buckets.get(number)!.entries.size > 0) return number;
      this.buckets.delete(number);
      this.order.shift();
    }
  }

  private insert(number: number): Bucket<Entry> {
    const bucket: Bucket<Entry> = { entries: new Set() };
    this.buckets.set(number, bucket);
    // New buckets are nearly always the latest, so the search ends at once.
    let at = this.order.length;
    while (at > 0 && this.order[at - 1]! > number) at--;
    this.order.splice(at, 0, number);
    return bucket;
  }
}
