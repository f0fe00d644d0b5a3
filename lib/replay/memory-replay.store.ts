import { randomUUID } from 'node:crypto';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import {
  WebhookConfigurationError,
  type ConfigurationProblem,
  WebhookStoreError,
} from '../errors/webhook.error.js';
import { fingerprintMark, EntryState, ReplayEntries } from './replay-entries.js';
import { IssuerShares } from './issuer-shares.js';
import { KeyIndex } from './key-index.js';
import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from './replay-store.js';
import { NONE, SlotLinks, TimeBuckets } from './time-buckets.js';

const DEFAULT_MAX_ENTRIES = 250_000;
const LARGEST_MAX_ENTRIES = 2 ** 24;

/** Bucket widths in milliseconds: leases and tokens end within minutes, entries kept for retries after days. */
const PENDING_BUCKET = 1_024;
const KEPT_BUCKET = 65_536;

/** Expired entries of each state that an operation removes: more than it can add, so they cannot pile up. */
const SWEEP_SLICE = 4;
/** Entries that a full store inspects to find one to drop. */
const SEARCH_LIMIT = 16;

export interface MemoryReplayStoreOptions {
  /** Maximum number of events, 1 to 16,777,216. Default: 250,000, about 32 MB when full. */
  readonly maxEntries?: number | undefined;
  /** Maximum number of events of one issuer, so that none can fill the store. Default: `maxEntries`. */
  readonly maxEntriesPerIssuer?: number | undefined;
  /** Default: the machine's clock. */
  readonly clock?: WebhookClock | undefined;
}

/**
 * Stores handled events in memory: for a single process, until it ends.
 *
 * A store that is not full keeps every entry until `keepUntil`. A full one first drops entries whose token has expired, those with the
 * least time left first (approximately); if every entry is still needed, it throws `store_full`. There is no timer: each call removes
 * a few expired entries.
 *
 * A reservation ends exactly when its lease does.
 *
 * A receiver creates one by default. If it trusts several issuers, limit each, so that none can fill the store for the others:
 *
 * ```ts
 * replay: { store: new MemoryReplayStore({ maxEntries: 250_000, maxEntriesPerIssuer: 50_000 }) }
 * ```
 */
export class MemoryReplayStore extends ReplayStore {
  override readonly scope = 'process';

  private readonly maxEntries: number;
  private readonly clock: WebhookClock;

  private readonly entries: ReplayEntries;
  private readonly events = new KeyIndex((slot) => this.entries.keysOf(slot).key);
  /** Only tokens whose key differs from the event's. */
  private readonly tokens = new KeyIndex((slot) => this.entries.keysOf(slot).tokenKey);

  /** Entries by the end of their state. */
  private readonly reserved: TimeBuckets;
  private readonly protected: TimeBuckets;
  private readonly kept: TimeBuckets;
  private readonly shares: IssuerShares | undefined;

  /** @throws {@link WebhookConfigurationError} if a limit is not an integer in its range */
  constructor(options: MemoryReplayStoreOptions = {}) {
    super();
    const maxEntries = options.maxEntries ?? DEFAULT_MAX_ENTRIES;
    const maxEntriesPerIssuer = options.maxEntriesPerIssuer ?? maxEntries;
    const faults = [
      ...boundFaults('maxEntries', maxEntries),
      ...boundFaults('maxEntriesPerIssuer', maxEntriesPerIssuer),
    ];
    if (faults.length > 0) throw new WebhookConfigurationError(faults);
    this.maxEntries = maxEntries;
    this.clock = options.clock ?? new SystemClock();
    this.entries = new ReplayEntries(maxEntries);
    const links = new SlotLinks(maxEntries);
    this.reserved = new TimeBuckets(PENDING_BUCKET, links);
    this.protected = new TimeBuckets(PENDING_BUCKET, links);
    this.kept = new TimeBuckets(KEPT_BUCKET, links);
    if (maxEntriesPerIssuer < maxEntries) {
      this.shares = new IssuerShares(maxEntriesPerIssuer, KEPT_BUCKET, maxEntries);
    }
  }

  /** Number of entries, including expired ones that are not removed yet. */
  get size(): number {
    return this.entries.size;
  }

  override reserve(claim: ReplayClaim): ReplayVerdict {
    const { entries } = this;
    const now = this.clock.now();
    this.sweep(now);

    const fingerprint = fingerprintMark(claim.fingerprint);
    const known = this.alive(this.events.get(claim.key), now);
    const tokenUser = this.tokenUser(claim, known, now);
    if (tokenUser !== NONE && tokenUser !== known) return { status: 'conflict' };
    if (known !== NONE) {
      if (entries.fingerprint[known] !== fingerprint) return { status: 'conflict' };
      this.prolong(known, claim, now);
      if (entries.state[known] !== EntryState.reserved) return { status: 'done' };
      return { status: 'in-progress', retryAt: entries.leaseUntil[known]! };
    }

    this.ensureSpace(claim.issuer, now);
    const reservation: ReplayReservation = { claim, owner: randomUUID() };
    const slot = entries.take(reservation, fingerprint);
    this.events.add(claim.key, slot);
    if (claim.tokenKey !== claim.key) this.tokens.add(claim.tokenKey, slot);
    this.shares?.take(slot, claim.issuer);
    entries.leaseUntil[slot] = now + claim.lease;
    this.file(slot);
    return { status: 'reserved', reservation };
  }

  override extend(reservation: ReplayReservation): boolean {
    const now = this.clock.now();
    const slot = this.held(reservation, now);
    if (slot === NONE) return false;
    this.unfile(slot);
    this.entries.leaseUntil[slot] = now + reservation.claim.lease;
    this.file(slot);
    return true;
  }

  override commit(reservation: ReplayReservation): boolean {
    const now = this.clock.now();
    this.sweep(now);
    const slot = this.held(reservation, now);
    if (slot === NONE) return false;
    this.unfile(slot);
    // The times are those of the claim, or later ones of a copy that arrived meanwhile.
    this.entries.settle(slot);
    this.file(slot);
    return true;
  }

  override release(reservation: ReplayReservation): boolean {
    const slot = this.held(reservation, this.clock.now());
    if (slot === NONE) return false;
    this.drop(slot);
    return true;
  }

  /** The slot of a reservation, if it is still the owner's. */
  private held({ claim, owner }: ReplayReservation, now: number): number {
    const slot = this.alive(this.events.get(claim.key), now);
    return slot !== NONE && this.entries.reservationOf(slot)?.owner === owner ? slot : NONE;
  }

  /** The slot of the event that used the claim's token. */
  private tokenUser({ key, tokenKey }: ReplayClaim, known: number, now: number): number {
    const other = this.alive(this.tokens.get(tokenKey), now);
    if (other !== NONE) return other;
    const own = tokenKey === key ? known : this.alive(this.events.get(tokenKey), now);
    return own !== NONE && this.entries.keysOf(own).tokenKey === tokenKey ? own : NONE;
  }

  /** The slot, unless it has expired: then it is removed. */
  private alive(slot: number | undefined, now: number): number {
    if (slot === undefined) return NONE;
    if (this.entries.isAlive(slot, now)) return slot;
    this.drop(slot);
    return NONE;
  }

  private ensureSpace(issuer: string, now: number): void {
    const { shares } = this;
    const shareIsFull = () => shares?.isFull(issuer) ?? false;
    const isFull = () => this.size >= this.maxEntries;
    if (!shareIsFull() && !isFull()) return;

    this.sweepThisSecond(now);
    if (shareIsFull()) this.dropOldest(shares?.keptOf(issuer), now);
    if (isFull()) this.dropOldest(this.kept, now);
    if (shareIsFull()) {
      throw new WebhookStoreError(
        'store_full',
        `The replay store is full for issuer "${issuer}", and every entry is still needed to refuse a replay; raise maxEntriesPerIssuer.`,
      );
    }
    if (isFull()) {
      throw new WebhookStoreError(
        'store_full',
        `The replay store has reached its ${this.maxEntries} entries, and every one is still needed to refuse a replay; raise maxEntries, or use a shared store.`,
      );
    }
  }

  private dropOldest(kept: TimeBuckets | undefined, now: number): void {
    const { replayUntil, keepUntil } = this.entries;
    let oldest = NONE;
    for (const slot of kept?.firstFew(SEARCH_LIMIT) ?? []) {
      // A clock that was set back can make a token valid again.
      const isNeeded = replayUntil[slot]! > now;
      if (!isNeeded && (oldest === NONE || keepUntil[slot]! < keepUntil[oldest]!)) oldest = slot;
    }
    if (oldest !== NONE) this.drop(oldest);
  }

  private sweep(now: number): void {
    for (let left = SWEEP_SLICE; left > 0; left--) {
      const lapsed = this.reserved.firstOverdue(now);
      const expired = this.protected.firstOverdue(now);
      const ended = this.kept.firstOverdue(now);
      if (lapsed === NONE && expired === NONE && ended === NONE) return;
      if (lapsed !== NONE) this.drop(lapsed);
      if (expired !== NONE) this.unprotect(expired, now);
      if (ended !== NONE) this.drop(ended);
    }
  }

  /** Also removes expired entries from the current buckets, which are not overdue as a whole. */
  private sweepThisSecond(now: number): void {
    const { leaseUntil, replayUntil } = this.entries;
    for (const slot of this.reserved.firstFew(SEARCH_LIMIT)) {
      if (leaseUntil[slot]! <= now) this.drop(slot);
    }
    for (const slot of this.protected.firstFew(SEARCH_LIMIT)) {
      if (replayUntil[slot]! <= now) this.unprotect(slot, now);
    }
  }

  private unprotect(slot: number, now: number): void {
    const { entries } = this;
    if (!entries.isAlive(slot, now)) return this.drop(slot);
    this.unfile(slot);
    entries.state[slot] = EntryState.kept;
    this.file(slot);
  }

  /**
   * A copy may have a token that is valid for longer. If the entry were dropped before that token expires, the copy would be handled
   * as a new event.
   */
  private prolong(slot: number, claim: ReplayClaim, now: number): void {
    const { entries } = this;
    if (!entries.isOutlivedBy(slot, claim)) return;
    this.unfile(slot);
    entries.prolong(slot, claim);
    const isNeeded = entries.replayUntil[slot]! > now;
    if (isNeeded && entries.state[slot] === EntryState.kept) {
      entries.state[slot] = EntryState.protected;
    }
    this.file(slot);
  }

  private drop(slot: number): void {
    const { entries } = this;
    this.unfile(slot);
    const { key, tokenKey } = entries.keysOf(slot);
    this.events.delete(key);
    if (tokenKey !== key) this.tokens.delete(tokenKey);
    this.shares?.giveBack(slot);
    entries.giveBack(slot);
  }

  /** Adds the entry to the bucket of its state and time. */
  private file(slot: number): void {
    const { state, leaseUntil, replayUntil, keepUntil } = this.entries;
    switch (state[slot]) {
      case EntryState.reserved:
        return this.reserved.add(slot, leaseUntil[slot]!);
      case EntryState.protected:
        return this.protected.add(slot, replayUntil[slot]!);
      default:
        this.kept.add(slot, keepUntil[slot]!);
        this.shares?.keep(slot, keepUntil[slot]!);
    }
  }

  /** Removes the entry from its bucket; state and times must be unchanged since `file`. */
  private unfile(slot: number): void {
    const { state, leaseUntil, replayUntil, keepUntil } = this.entries;
    switch (state[slot]) {
      case EntryState.reserved:
        return this.reserved.remove(slot, leaseUntil[slot]!);
      case EntryState.protected:
        return this.protected.remove(slot, replayUntil[slot]!);
      default:
        this.kept.remove(slot, keepUntil[slot]!);
        this.shares?.unkeep(slot, keepUntil[slot]!);
    }
  }
}

function boundFaults(path: string, bound: number): ConfigurationProblem[] {
  return Number.isInteger(bound) && bound >= 1 && bound <= LARGEST_MAX_ENTRIES
    ? []
    : [{ path, message: `must be an integer from 1 to ${LARGEST_MAX_ENTRIES}` }];
}
