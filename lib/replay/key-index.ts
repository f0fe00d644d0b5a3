import { randomInt } from 'node:crypto';
import { KeyTable } from './key-table.js';

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
