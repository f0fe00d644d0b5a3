import type { ReplayClaim, ReplayVerdict } from '../../lib/replay/replay-store.js';

interface Entry {
  readonly claim: ReplayClaim;
  owner: string | undefined;
  leaseUntil: number;
}

/** The rules of the replay store in memory, without a thought for speed: a list, walked for everything. */
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
      return known.owner === undefined ? 'done' : 'in-progress';
    }
    const ofIssuer = this.entries.filter((entry) => entry.claim.issuer === claim.issuer);
    if (ofIssuer.length >= this.maxEntriesPerIssuer) this.dropOldest(ofIssuer, now);
    if (this.entries.length >= this.maxEntries) this.dropOldest(this.entries, now);
    const rest = this.entries.filter((entry) => entry.claim.issuer === claim.issuer);
    if (rest.length >= this.maxEntriesPerIssuer || this.entries.length >= this.maxEntries) {
      return 'store_full';
    }
    this.entries.push({ claim, owner, leaseUntil: now + claim.lease });
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
    this.entries = this.entries.filter(({ owner, leaseUntil, claim }) =>
      owner === undefined ? claim.keepUntil > now : leaseUntil > now,
    );
  }

  private held({ key }: ReplayClaim, owner: string, now: number): Entry | undefined {
    this.forgetEnded(now);
    return this.entries.find((entry) => entry.claim.key === key && entry.owner === owner);
  }

  private dropOldest(among: readonly Entry[], now: number): void {
    const [oldest] = among
      .filter(({ owner, claim }) => owner === undefined && claim.replayUntil <= now)
      .sort((a, b) => a.claim.keepUntil - b.claim.keepUntil);
    this.entries = this.entries.filter((entry) => entry !== oldest);
  }
}
