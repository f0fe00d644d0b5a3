/**
 * Remembers the last entries, up to a bound; the oldest is removed first.
 *
 * A ring buffer of the keys finds the oldest entry at once. A Map alone would scan over all entries deleted before it,
 * which the benchmark `send` shows.
 */
export class RecentEntries<Value> {
  private readonly values = new Map<string, Value>();
  private readonly keys: string[] = [];
  private oldest = 0;

  /** @param capacity - at least 1 */
  constructor(private readonly capacity: number) {}

  get(key: string): Value | undefined {
    return this.values.get(key);
  }

  /** A known key keeps its position. */
  set(key: string, value: Value): void {
    if (!this.values.has(key)) this.makeRoomFor(key);
    this.values.set(key, value);
  }

  private makeRoomFor(key: string): void {
    if (this.keys.length < this.capacity) {
      this.keys.push(key);
      return;
    }
    this.values.delete(this.keys[this.oldest]!);
    this.keys[this.oldest] = key;
    this.oldest = (this.oldest + 1) % this.capacity;
  }
}
