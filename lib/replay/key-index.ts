/** A Map that grows past a power of two copies itself; among many small ones no copy takes long. */
const SHARDS = 64;

/** Finds the slot of a key. Built for digests: keys spread by their last two characters. */
export class KeyIndex {
  private readonly shards = Array.from({ length: SHARDS }, () => new Map<string, number>());
  private size = 0;

  get(key: string): number | undefined {
    // Few senders use txn, and without it there is nothing to look for among the tokens.
    return this.size === 0 ? undefined : this.shardOf(key).get(key);
  }

  /** @param key - not in the index yet */
  add(key: string, slot: number): void {
    this.shardOf(key).set(key, slot);
    this.size++;
  }

  delete(key: string): void {
    if (this.shardOf(key).delete(key)) this.size--;
  }

  private shardOf(key: string): Map<string, number> {
    const end = key.length;
    const spread = key.charCodeAt(end - 1) + 31 * key.charCodeAt(end - 2);
    // NaN, of a key with less than two characters, falls to shard 0.
    return this.shards[spread & (SHARDS - 1)]!;
  }
}
