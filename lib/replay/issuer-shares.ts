import { SlotValues } from './replay-entries.js';
import { SlotLinks, TimeBuckets } from './time-buckets.js';

interface Share {
  readonly issuer: string;
  count: number;
  /** What of it may go first when the share is full. */
  readonly kept: TimeBuckets;
}

/** Counts each issuer's entries against one bound, and knows which of them may go first. */
export class IssuerShares {
  private readonly shares = new Map<string, Share>();
  private readonly shareOf = new SlotValues<Share>();
  private readonly links: SlotLinks;

  /** @param width - milliseconds of the buckets in which entries are kept */
  constructor(
    private readonly bound: number,
    private readonly width: number,
    slots: number,
  ) {
    this.links = new SlotLinks(slots);
  }

  isFull(issuer: string): boolean {
    return (this.shares.get(issuer)?.count ?? 0) >= this.bound;
  }

  keptOf(issuer: string): TimeBuckets | undefined {
    return this.shares.get(issuer)?.kept;
  }

  take(slot: number, issuer: string): void {
    let share = this.shares.get(issuer);
    if (share === undefined) {
      share = { issuer, count: 0, kept: new TimeBuckets(this.width, this.links) };
      this.shares.set(issuer, share);
    }
    share.count++;
    this.shareOf.set(slot, share);
  }

  giveBack(slot: number): void {
    const share = this.shareOf.get(slot);
    if (share === undefined) return;
    this.shareOf.set(slot, undefined);
    if (--share.count === 0) this.shares.delete(share.issuer);
  }

  keep(slot: number, until: number): void {
    this.shareOf.get(slot)?.kept.add(slot, until);
  }

  /** @param until - the time the slot was kept with */
  unkeep(slot: number, until: number): void {
    this.shareOf.get(slot)?.kept.remove(slot, until);
  }
}
