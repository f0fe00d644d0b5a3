import { randomUUID } from 'node:crypto';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import { readOptions } from '../options/read-options.js';
import { CLOCK, object, optional, whole } from '../options/rules.js';
import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from './replay-store.js';

const DEFAULT_MAX_ENTRIES = 250_000;
/** A Map of V8 that loses and gains entries cannot hold many more. */
const LARGEST_MAX_ENTRIES = 2 ** 22;

/** Entries that a call checks for their end. */
const SWEEP_SLICE = 8;
/** Entries that a full store checks to find one to drop. */
const SEARCH_LIMIT = 4_000;

export interface MemoryReplayStoreOptions {
  /** Maximum number of events, 1 to 4,194,304. Default: 250,000, about 80 MB when full. */
  readonly maxEntries?: number | undefined;
  /** Maximum number of events of one issuer, so that none can fill the store. Default: `maxEntries`. */
  readonly maxEntriesPerIssuer?: number | undefined;
  /** Default: the machine's clock. */
  readonly clock?: WebhookClock | undefined;
}

const BOUND = whole(1, LARGEST_MAX_ENTRIES);

const OPTIONS = object<MemoryReplayStoreOptions>()({
  maxEntries: optional(BOUND, DEFAULT_MAX_ENTRIES),
  maxEntriesPerIssuer: optional(BOUND),
  clock: optional(CLOCK),
});

/** An event. All times are epoch milliseconds. */
interface Entry {
  readonly key: string;
  readonly tokenKey: string;
  readonly fingerprint: string;
  readonly issuer: string;
  /** Of the reservation; `undefined` once the event is handled. */
  owner: string | undefined;
  leaseUntil: number;
  /** The latest of all claims on the event. */
  replayUntil: number;
  /** Never before `replayUntil`. */
  keepUntil: number;
}

/**
 * Stores handled events in memory: for a single process, until it ends.
 *
 * A store that is not full keeps every entry until `keepUntil`. A full one drops the oldest entry whose token has expired, and rejects
 * with `store_full` if it finds none. There is no timer: each call removes a few expired entries.
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
  private readonly maxEntriesPerIssuer: number;
  private readonly clock: WebhookClock;

  private readonly all = new Share();
  /** By issuer; `undefined` without a limit per issuer. */
  private readonly shares: Map<string, Share> | undefined;
  /** Only tokens whose key differs from the event's. */
  private readonly tokens = new Map<string, Entry>();
  /** Goes round all entries, a few with each call. */
  private sweeping: Iterator<Entry, undefined> | undefined;

  /** @throws {@link WebhookConfigurationError} if a limit is not an integer in its range */
  constructor(options?: MemoryReplayStoreOptions) {
    super();
    const read = readOptions(OPTIONS, options, 'MemoryReplayStore');
    this.maxEntries = read.maxEntries;
    this.maxEntriesPerIssuer = read.maxEntriesPerIssuer ?? read.maxEntries;
    this.clock = read.clock ?? new SystemClock();
    if (this.maxEntriesPerIssuer < this.maxEntries) this.shares = new Map();
  }

  /** Number of entries, including expired ones that are not removed yet. */
  get size(): number {
    return this.all.entries.size;
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const now = this.clock.now();
    this.sweep(now);

    const known = this.alive(this.all.entries.get(claim.key), now);
    const tokenUser = this.tokenUser(claim, now);
    if (tokenUser !== undefined && tokenUser !== known) return { status: 'conflict' };
    if (known !== undefined) {
      if (known.fingerprint !== claim.fingerprint) return { status: 'conflict' };
      prolong(known, claim);
      return known.owner === undefined
        ? { status: 'done' }
        : { status: 'in-progress', retryAt: known.leaseUntil };
    }

    this.ensureSpace(claim.issuer, now);
    const owner = randomUUID();
    this.insert(claim, owner, now);
    return { status: 'reserved', reservation: { claim, owner } };
  }

  override async extend(reservation: ReplayReservation): Promise<boolean> {
    const now = this.clock.now();
    const entry = this.held(reservation, now);
    if (entry === undefined) return false;
    entry.leaseUntil = now + reservation.claim.lease;
    return true;
  }

  override async commit(reservation: ReplayReservation): Promise<boolean> {
    const now = this.clock.now();
    this.sweep(now);
    const entry = this.held(reservation, now);
    if (entry === undefined) return false;
    // Its times are those of the claim, or later ones of a copy that arrived meanwhile.
    entry.owner = undefined;
    return true;
  }

  override async release(reservation: ReplayReservation): Promise<boolean> {
    const entry = this.held(reservation, this.clock.now());
    if (entry === undefined) return false;
    this.drop(entry);
    return true;
  }

  /** The entry of a reservation, if it is still the owner's. */
  private held({ claim, owner }: ReplayReservation, now: number): Entry | undefined {
    const entry = this.alive(this.all.entries.get(claim.key), now);
    return entry?.owner === owner ? entry : undefined;
  }

  /** The entry of the event that used the claim's token. */
  private tokenUser({ tokenKey }: ReplayClaim, now: number): Entry | undefined {
    const other = this.alive(this.tokens.get(tokenKey), now);
    if (other !== undefined) return other;
    const own = this.alive(this.all.entries.get(tokenKey), now);
    return own?.tokenKey === tokenKey ? own : undefined;
  }

  /** The entry, unless it has expired: then it is removed. */
  private alive(entry: Entry | undefined, now: number): Entry | undefined {
    if (entry === undefined || !hasExpired(entry, now)) return entry;
    this.drop(entry);
    return undefined;
  }

  private ensureSpace(issuer: string, now: number): void {
    const share = this.shares?.get(issuer);
    if (share !== undefined && !this.evict(share, this.maxEntriesPerIssuer, now)) {
      throw new WebhookStoreError(
        'store_full',
        `The replay store is full for issuer "${issuer}", and its oldest entries are still needed to refuse a replay; raise maxEntriesPerIssuer.`,
      );
    }
    if (!this.evict(this.all, this.maxEntries, now)) {
      throw new WebhookStoreError(
        'store_full',
        `The replay store has reached its ${this.maxEntries} entries, and the oldest are still needed to refuse a replay; raise maxEntries, or use a shared store.`,
      );
    }
  }

  /** @returns whether there is space for another entry now */
  private evict(share: Share, limit: number, now: number): boolean {
    const { size } = share.entries;
    if (size < limit) return true;
    for (let left = Math.min(size, SEARCH_LIMIT); left > 0; left--) {
      const entry = share.next();
      if (isNeeded(entry, now)) continue;
      this.drop(entry);
      return true;
    }
    return false;
  }

  private sweep(now: number): void {
    for (let left = SWEEP_SLICE; left > 0; left--) {
      this.sweeping ??= this.all.entries.values();
      const { value } = this.sweeping.next();
      if (value === undefined) return this.endRound();
      this.alive(value, now);
    }
  }

  /** An iterator that is not used keeps all memory that its map has outgrown, so none outlives a round. */
  private endRound(): void {
    this.sweeping = undefined;
    this.all.restart();
    for (const share of this.shares?.values() ?? []) share.restart();
  }

  private insert(claim: ReplayClaim, owner: string, now: number): void {
    const { key, tokenKey, fingerprint, issuer, lease, replayUntil } = claim;
    const entry: Entry = {
      key,
      tokenKey,
      fingerprint,
      issuer,
      owner,
      leaseUntil: now + lease,
      replayUntil,
      keepUntil: Math.max(replayUntil, claim.keepUntil),
    };
    this.all.entries.set(key, entry);
    if (tokenKey !== key) this.tokens.set(tokenKey, entry);
    if (this.shares === undefined) return;
    const share = this.shares.get(issuer) ?? new Share();
    share.entries.set(key, entry);
    this.shares.set(issuer, share);
  }

  private drop({ key, tokenKey, issuer }: Entry): void {
    this.all.entries.delete(key);
    if (tokenKey !== key) this.tokens.delete(tokenKey);
    const share = this.shares?.get(issuer);
    share?.entries.delete(key);
    if (share?.entries.size === 0) this.shares?.delete(issuer);
  }
}

/** The entries of the store, or of one issuer. */
class Share {
  /** By the key of the event, from the oldest to the newest. */
  readonly entries = new Map<string, Entry>();
  private cursor: Iterator<Entry, undefined> | undefined;

  /** The entry after the one before, or the oldest; there must be one. */
  next(): Entry {
    const value = this.cursor?.next().value;
    if (value !== undefined) return value;
    // Kept, since a new iterator steps over every entry that was removed.
    this.cursor = this.entries.values();
    return this.cursor.next().value!;
  }

  /** Continues with the oldest entry. */
  restart(): void {
    this.cursor = undefined;
  }
}

/**
 * A copy may have a token that is valid for longer. If the entry were dropped before that token expires, the copy would be handled
 * as a new event.
 */
function prolong(entry: Entry, { replayUntil, keepUntil }: ReplayClaim): void {
  entry.replayUntil = Math.max(entry.replayUntil, replayUntil);
  entry.keepUntil = Math.max(entry.keepUntil, entry.replayUntil, keepUntil);
}

/** Whether its lease, or its time to be kept, has ended. */
function hasExpired({ owner, leaseUntil, keepUntil }: Entry, now: number): boolean {
  return (owner === undefined ? keepUntil : leaseUntil) <= now;
}

/** Whether a full store must keep it: it is being handled, or its token would still verify. */
function isNeeded({ owner, leaseUntil, replayUntil }: Entry, now: number): boolean {
  return (owner === undefined ? replayUntil : leaseUntil) > now;
}
