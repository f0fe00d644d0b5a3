/**
 * Remembers the last entries, up to a bound; the oldest goes first.
 *
 * A Map alone would know its oldest as well, but finds it only behind all the places that were given up before it
 * (benchmark `send`): a ring of the keys has it at hand.
 */
export class RecentEntries<Value> {
  private readonly values = new Map<string, Value>();
  private readonly keys: string[] = [];
  private oldest = 0;

  /** @param most - entries remembered, at least 1 */
  constructor(private readonly most: number) {}

  get(key: string): Value | undefined {
    return this.values.get(key);
  }

  /** One that is known keeps its place. */
  set(key: string, value: Value): void {
    if (!this.values.has(key)) this.makeRoomFor(key);
    this.values.set(key, value);
  }

  private makeRoomFor(key: string): void {
    if (this.keys.length < this.most) {
      this.keys.push(key);
      return;
    }
    this.values.delete(this.keys[this.oldest]!);
    this.keys[this.oldest] = key;
    this.oldest = (this.oldest + 1) % this.most;
  }
}
