import { randomInt } from 'node:crypto';

/** A table doubles at this load: at half, most searches end at the first cell. */
const FULLEST = 0.5;
const SMALLEST = 16;

/**
 * A hash table from keys to slots, with open addressing in one typed array: a search touches one place in memory, while a Map follows
 * a chain of entries (benchmark `replay`).
 */
class KeyTable {
  /** Pairs of hash and slot + 1, so that 0 is an empty cell. */
  private cells = new Int32Array(2 * SMALLEST);
  private mask = SMALLEST - 1;
  private used = 0;

  /** @param isOf - whether the slot belongs to the key, since two keys may have the same hash */
  constructor(private readonly isOf: (slot: number, key: string) => boolean) {}

  /** @returns `undefined` for an unknown key */
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

  /** Moves displaced pairs into the gap, so that no search ends too early. */
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

/** Growing copies a table; with many small tables no copy takes long. */
const SHARD_BITS = 6;

/** Characters at the end of a key that are hashed: 48 bits of a digest. */
const LOOKED_AT = 8;

/** Maps keys to slots. The keys are digests, so hashing their last characters is enough. */
export class KeyIndex {
  private readonly shards: readonly KeyTable[];
  private size = 0;
  /** A sender that chooses ids must not be able to produce collisions. */
  private readonly seed = randomInt(2 ** 32) | 0;

  /** @param keyOf - the key in a slot */
  constructor(keyOf: (slot: number) => string) {
    const isOf = (slot: number, key: string): boolean => keyOf(slot) === key;
    this.shards = Array.from({ length: 1 << SHARD_BITS }, () => new KeyTable(isOf));
  }

  get(key: string): number | undefined {
    // Few senders use txn; without it the index of tokens is empty.
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

  /** Call it while the slot still has its key. */
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
