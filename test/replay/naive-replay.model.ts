import type { ReplayClaim, ReplayVerdict } from '../../lib/replay/replay-store.js';

interface Entry {
  readonly claim: ReplayClaim;
  replayUntil: number;
  keepUntil: number;
  owner: string | undefined;
  leaseUntil: number;
}

/** The rules of the in-memory replay store without optimisations: a list that every call searches. */
export class NaiveReplayModel {
  private entries: Entry[] = [];

  constructor(
    private readonly maxEntries: number,
    private readonly maxEntriesPerIssuer: number,
  ) {}

  get size(): number {
    return this.entries.length;
  }

  reserve(claim: ReplayClaim, owner: string, now: number): ReplayVerdict['status'] | 'store_full' {
    this.forgetEnded(now);
    const known = this.entries.find((entry) => entry.claim.key === claim.key);
    const user = this.entries.find((entry) => entry.claim.tokenKey === claim.tokenKey);
    if (user && user !== known) return 'conflict';
    if (known) {
      if (known.claim.fingerprint !== claim.fingerprint) return 'conflict';
      known.replayUntil = Math.max(known.replayUntil, claim.replayUntil);
      known.keepUntil = Math.max(known.keepUntil, claim.keepUntil);
      return known.owner === undefined ? 'done' : 'in-progress';
    }
    const ofIssuer = this.entries.filter((entry) => entry.claim.issuer === claim.issuer);
    if (ofIssuer.length >= this.maxEntriesPerIssuer) this.dropOldest(ofIssuer, now);
    if (this.entries.length >= this.maxEntries) this.dropOldest(this.entries, now);
    const rest = this.entries.filter((entry) => entry.claim.issuer === claim.issuer);
    if (rest.length >= this.maxEntriesPerIssuer || this.entries.length >= this.maxEntries) {
      return 'store_full';
    }
    const { replayUntil, keepUntil, lease } = claim;
    this.entries.push({ claim, replayUntil, keepUntil, owner, leaseUntil: now + lease });
    return 'reserved';
  }

  extend(claim: ReplayClaim, owner: string, now: number): boolean {
    const entry = this.held(claim, owner, now);
    if (entry) entry.leaseUntil = now + claim.lease;
    return entry !== undefined;
  }

  commit(claim: ReplayClaim, owner: string, now: number): boolean {
    const entry = this.held(claim, owner, now);
    if (entry) entry.owner = undefined;
    return entry !== undefined;
  }

  release(claim: ReplayClaim, owner: string, now: number): boolean {
    const entry = this.held(claim, owner, now);
    this.entries = this.entries.filter((other) => other !== entry);
    return entry !== undefined;
  }

  forgetEnded(now: number): void {
    this.entries = this.entries.filter(({ owner, leaseUntil, keepUntil }) =>
      owner === undefined ? keepUntil > now : leaseUntil > now,
    );
  }

  private held({ key }: ReplayClaim, owner: string, now: number): Entry | undefined {
    this.forgetEnded(now);
    return this.entries.find((entry) => entry.claim.key === key && entry.owner === owner);
  }

  private dropOldest(among: readonly Entry[], now: number): void {
    const [oldest] = among
      .filter(({ owner, replayUntil }) => owner === undefined && replayUntil <= now)
      .sort((a, b) => a.keepUntil - b.keepUntil);
    this.entries = this.entries.filter((entry) => entry !== oldest);
  }
}
