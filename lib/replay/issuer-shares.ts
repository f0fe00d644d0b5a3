import { SlotValues } from './replay-entries.js';
import { SlotLinks, TimeBuckets } from './time-buckets.js';

interface Share {
  readonly issuer: string;
  count: number;
  /** The entries that may be dropped first if the share is full. */
  readonly kept: TimeBuckets;
}

/** Limits the number of entries per issuer, and finds those that may be dropped first. */
export class IssuerShares {
  private readonly shares = new Map<string, Share>();
  private readonly shareOf = new SlotValues<Share>();
  private readonly links: SlotLinks;

  /** @param width - bucket width in milliseconds */
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

  /** @param until - as passed to `keep` */
  unkeep(slot: number, until: number): void {
    this.shareOf.get(slot)?.kept.remove(slot, until);
  }
}
