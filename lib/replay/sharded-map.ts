const SHARDS = 64;

/** A Map in parts: growing and shrinking copy one part only, so no operation on a million entries takes long. */
export class ShardedMap<Value> {
  private readonly shards = Array.from({ length: SHARDS }, () => new Map<string, Value>());
  private entries = 0;

  get size(): number {
    return this.entries;
  }

  get(key: string): Value | undefined {
    return this.shardOf(key).get(key);
  }

  /** @param key - not in the map yet */
  add(key: string, value: Value): void {
    this.shardOf(key).set(key, value);
    this.entries++;
  }

  delete(key: string): void {
    if (this.shardOf(key).delete(key)) this.entries--;
  }

  private shardOf(key: string): Map<string, Value> {
    // Keys are digests. The last character of one has fewer bits than the others.
    return this.shards[key.charCodeAt(key.length - 2) % SHARDS] ?? this.shards[0]!;
  }
}
