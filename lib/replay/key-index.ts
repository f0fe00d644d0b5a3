import { randomInt } from 'node:crypto';

/** A table doubles at this load: half full, a search mostly ends where it begins. */
const FULLEST = 0.5;
const SMALLEST = 16;

/**
 * Finds slots by the hash of their key. Open addressing in one array of numbers: a search touches one place in memory, where a
 * Map follows a chain of entries to their keys (benchmark `replay`).
 */
class KeyTable {
  /** Pairs of a hash and a slot, the slot plus one, so that nothing is 0. */
  private cells = new Int32Array(2 * SMALLEST);
  private mask = SMALLEST - 1;
  private used = 0;

  /** @param isOf - whether the slot is that of the key: two keys may have one hash */
  constructor(private readonly isOf: (slot: number, key: string) => boolean) {}

  /** @returns `undefined` for a key that is not in the table */
  find(key: string, hash: number): number | undefined {
    const at = this.search(key, hash);
    return at === undefined ? undefined : this.cells[at + 1]! - 1;
  }

  /** @param hash - of a key that is not in the table yet */
  add(hash: number, slot: number): void {
    if (this.used >= (this.mask + 1) * FULLEST) this.grow();
    this.used++;
    this.place(hash, slot + 1);
  }

  /** @returns whether it was in the table */
  remove(key: string, hash: number): boolean {
    const at = this.search(key, hash);
    if (at === undefined) return false;
    this.used--;
    this.closeGap(at);
    return true;
  }

  private search(key: string, hash: number): number | undefined {
    const { cells } = this;
    for (let at = this.homeOf(hash); cells[at + 1] !== 0; at = this.after(at)) {
      if (cells[at] === hash && this.isOf(cells[at + 1]! - 1, key)) return at;
    }
    return undefined;
  }

  private place(hash: number, mark: number): void {
    const { cells } = this;
    let at = this.homeOf(hash);
    while (cells[at + 1] !== 0) at = this.after(at);
    cells[at] = hash;
    cells[at + 1] = mark;
  }

  /** Moves up what stands behind a removed pair only because its own place was taken: no search may end too early. */
  private closeGap(gap: number): void {
    const { cells } = this;
    for (let at = this.after(gap); cells[at + 1] !== 0; at = this.after(at)) {
      if (this.distance(this.homeOf(cells[at]!), at) < this.distance(gap, at)) continue;
      cells[gap] = cells[at]!;
      cells[gap + 1] = cells[at + 1]!;
      gap = at;
    }
    cells[gap + 1] = 0;
  }

  private grow(): void {
    const { cells } = this;
    this.mask = 2 * this.mask + 1;
    this.cells = new Int32Array(2 * (this.mask + 1));
    for (let at = 0; at < cells.length; at += 2) {
      if (cells[at + 1] !== 0) this.place(cells[at]!, cells[at + 1]!);
    }
  }

  private homeOf(hash: number): number {
    return 2 * (hash & this.mask);
  }

  private after(at: number): number {
    return (at + 2) & (2 * this.mask + 1);
  }

  private distance(from: number, to: number): number {
    return (to - from) & (2 * this.mask + 1);
  }
}

/** A table that grows copies itself; among many small ones no copy takes long. */
const SHARD_BITS = 6;

/** Characters at the end of a key that are looked at: 48 bits of a digest. */
const LOOKED_AT = 8;

/** Finds the slot of a key. Built for digests, which spread by their last characters. */
export class KeyIndex {
  private readonly shards: readonly KeyTable[];
  private size = 0;
  /** Whoever chooses ids must not know which of them meet. */
  private readonly seed = randomInt(2 ** 32) | 0;

  /** @param keyOf - the key in a slot */
  constructor(keyOf: (slot: number) => string) {
    const isOf = (slot: number, key: string): boolean => keyOf(slot) === key;
    this.shards = Array.from({ length: 1 << SHARD_BITS }, () => new KeyTable(isOf));
  }

  get(key: string): number | undefined {
    // Few senders use txn, and without it there is nothing to look for among the tokens.
    if (this.size === 0) return undefined;
    const hash = this.hash(key);
    return this.shardOf(hash).find(key, hash);
  }

  /** @param key - not in the index yet */
  add(key: string, slot: number): void {
    const hash = this.hash(key);
    this.shardOf(hash).add(hash, slot);
    this.size++;
  }

  /** To be called while the slot still has its key. */
  delete(key: string): void {
    const hash = this.hash(key);
    if (this.shardOf(hash).remove(key, hash)) this.size--;
  }

  private shardOf(hash: number): KeyTable {
    return this.shards[hash >>> (32 - SHARD_BITS)]!;
  }

  private hash(key: string): number {
    let hash = this.seed;
    for (let at = Math.max(0, key.length - LOOKED_AT); at < key.length; at++) {
      hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
    }
    hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b);
    return hash ^ (hash >>> 13);
  }
}
