import type { ReplayClaim, ReplayVerdict } from '../../lib/replay/replay-store.js';

interface Entry {
  readonly claim: ReplayClaim;
  replayUntil: number;
  keepUntil: number;
  owner: string | undefined;
  leaseUntil: number;
}

type Status = ReplayVerdict['status'] | 'store_full';

/**
 * The rules of the in-memory replay store without optimisations: a list that every call searches.
 *
 * Which entries a full store drops is left open, among those that it does not need: its answers show it.
 */
export class NaiveReplayModel {
  private entries: Entry[] = [];

  constructor(
    private readonly maxEntries: number,
    private readonly maxEntriesPerIssuer: number,
  ) {}

  /** The fewest entries that a store has. */
  leastSize(now: number): number {
    return this.entries.filter((entry) => !this.mayBeDropped(entry, now)).length;
  }

  /** @param answer - of the store */
  reserve(claim: ReplayClaim, owner: string, now: number, answer: string): Status {
    this.forgetEnded(now);
    const { user, known } = this.find(claim);
    for (const entry of [user, known]) {
      if (entry === undefined || !this.mayBeDropped(entry, now)) continue;
      if (this.verdict(claim, now) !== answer) this.remove(entry);
    }
    const status = this.verdict(claim, now);
    const { replayUntil, keepUntil, lease } = claim;
    if (status === 'reserved') {
      this.entries.push({ claim, replayUntil, keepUntil, owner, leaseUntil: now + lease });
    } else if (status !== 'conflict' && status !== 'store_full') {
      known!.replayUntil = Math.max(known!.replayUntil, replayUntil);
      known!.keepUntil = Math.max(known!.keepUntil, keepUntil);
    }
    return status;
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
    this.remove(entry);
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

  private find({ key, tokenKey }: ReplayClaim): Partial<Record<'known' | 'user', Entry>> {
    return {
      known: this.entries.find(({ claim }) => claim.key === key),
      user: this.entries.find(({ claim }) => claim.tokenKey === tokenKey),
    };
  }

  private verdict(claim: ReplayClaim, now: number): Status {
    const { known, user } = this.find(claim);
    if (user && user !== known) return 'conflict';
    if (known) {
      if (known.claim.fingerprint !== claim.fingerprint) return 'conflict';
      return known.owner === undefined ? 'done' : 'in-progress';
    }
    const needed = this.entries.filter((entry) => isNeeded(entry, now));
    const ofIssuer = needed.filter((entry) => entry.claim.issuer === claim.issuer);
    const isFull = ofIssuer.length >= this.maxEntriesPerIssuer || needed.length >= this.maxEntries;
    return isFull ? 'store_full' : 'reserved';
  }

  private remove(entry: Entry | undefined): void {
    this.entries = this.entries.filter((other) => other !== entry);
  }

  private mayBeDropped(entry: Entry, now: number): boolean {
    return this.maxEntries < LARGE && !isNeeded(entry, now);
  }
}

/** A store of this size does not become full in a test. */
const LARGE = 100;

function isNeeded({ owner, replayUntil, leaseUntil }: Entry, now: number): boolean {
  return owner !== undefined ? leaseUntil > now : replayUntil > now;
}
