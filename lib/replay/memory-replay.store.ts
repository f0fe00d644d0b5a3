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

/** Bucket widths in milliseconds: leases and tokens end within minutes, entries kept for retries after days. */
const PENDING_BUCKET = 1_024;
const KEPT_BUCKET = 65_536;

/** Expired entries of each wheel that an operation removes: more than it can add, so they cannot pile up. */
const SWEEP_SLICE = 4;
/** Entries that a full store inspects to find one to drop. */
const SEARCH_LIMIT = 16;

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
  /** Handled, its token has expired, and kept to recognise the sender's retries. */
  isKept: boolean;
}

/** The entries of one issuer. */
interface Share {
  count: number;
  readonly kept: ExpiryWheel<Entry>;
}

/**
 * Stores handled events in memory: for a single process, until it ends.
 *
 * A store that is not full keeps every entry until `keepUntil`. A full one first drops entries whose token has expired, those with the
 * least time left first (to about a minute); if every entry is still needed, it rejects with `store_full`. There is no timer: each
 * call removes a few expired entries.
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

  private readonly events = new Map<string, Entry>();
  /** Only tokens whose key differs from the event's. */
  private readonly tokens = new Map<string, Entry>();
  /** Entries that are needed, by the end of their lease or of their token. */
  private readonly pending = new ExpiryWheel<Entry>(PENDING_BUCKET);
  /** Entries that a full store may drop, by the end of their time. */
  private readonly kept = new ExpiryWheel<Entry>(KEPT_BUCKET);
  /** By issuer; `undefined` without a limit per issuer. */
  private readonly shares: Map<string, Share> | undefined;

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
    return this.events.size;
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const now = this.clock.now();
    this.sweep(now);

    const known = this.alive(this.events.get(claim.key), now);
    const tokenUser = this.tokenUser(claim, now);
    if (tokenUser !== undefined && tokenUser !== known) return { status: 'conflict' };
    if (known !== undefined) {
      if (known.fingerprint !== claim.fingerprint) return { status: 'conflict' };
      this.prolong(known, claim, now);
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
    this.change(entry, { leaseUntil: now + reservation.claim.lease });
    return true;
  }

  override async commit(reservation: ReplayReservation): Promise<boolean> {
    const now = this.clock.now();
    this.sweep(now);
    const entry = this.held(reservation, now);
    if (entry === undefined) return false;
    // Its times are those of the claim, or later ones of a copy that arrived meanwhile.
    this.change(entry, { owner: undefined });
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
    const entry = this.alive(this.events.get(claim.key), now);
    return entry?.owner === owner ? entry : undefined;
  }

  /** The entry of the event that used the claim's token. */
  private tokenUser({ tokenKey }: ReplayClaim, now: number): Entry | undefined {
    const other = this.alive(this.tokens.get(tokenKey), now);
    if (other !== undefined) return other;
    const own = this.alive(this.events.get(tokenKey), now);
    return own?.tokenKey === tokenKey ? own : undefined;
  }

  /** The entry, unless it has expired: then it is removed. */
  private alive(entry: Entry | undefined, now: number): Entry | undefined {
    if (entry === undefined || !hasExpired(entry, now)) return entry;
    this.drop(entry);
    return undefined;
  }

  private ensureSpace(issuer: string, now: number): void {
    const share = () => this.shares?.get(issuer);
    const shareIsFull = () => (share()?.count ?? 0) >= this.maxEntriesPerIssuer;
    const isFull = () => this.size >= this.maxEntries;
    if (!shareIsFull() && !isFull()) return;

    this.sweepThisSecond(now);
    if (shareIsFull()) this.dropOldest(share()?.kept, now);
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

  private dropOldest(kept: ExpiryWheel<Entry> | undefined, now: number): void {
    for (let tried = 0; tried < SEARCH_LIMIT; tried++) {
      const entry = kept?.take();
      if (entry === undefined) return;
      if (entry.replayUntil <= now) return this.drop(entry);
      // The clock was set back, so the token is valid again.
      this.change(entry, { isKept: false });
    }
  }

  private sweep(now: number): void {
    for (let left = SWEEP_SLICE; left > 0; left--) {
      const due = this.pending.takeOverdue(now);
      const ended = this.kept.takeOverdue(now);
      if (due === undefined && ended === undefined) return;
      if (due !== undefined) this.settle(due, now);
      if (ended !== undefined) this.drop(ended);
    }
  }

  /** Also settles entries of the current bucket, which is not overdue as a whole. */
  private sweepThisSecond(now: number): void {
    for (let tried = 0; tried < SEARCH_LIMIT; tried++) {
      const entry = this.pending.take();
      if (entry === undefined) return;
      this.settle(entry, now);
    }
  }

  /** Decides about an entry that was taken from `pending`: it is dropped, kept, or still needed. */
  private settle(entry: Entry, now: number): void {
    if (hasExpired(entry, now)) this.drop(entry);
    else this.change(entry, { isKept: entry.owner === undefined && entry.replayUntil <= now });
  }

  /**
   * A copy may have a token that is valid for longer. If the entry were dropped before that token expires, the copy would be handled
   * as a new event.
   */
  private prolong(entry: Entry, claim: ReplayClaim, now: number): void {
    const replayUntil = Math.max(entry.replayUntil, claim.replayUntil);
    const keepUntil = Math.max(entry.keepUntil, replayUntil, claim.keepUntil);
    if (replayUntil === entry.replayUntil && keepUntil === entry.keepUntil) return;
    this.change(entry, { replayUntil, keepUntil, isKept: entry.isKept && replayUntil <= now });
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
      isKept: false,
    };
    this.events.set(key, entry);
    if (tokenKey !== key) this.tokens.set(tokenKey, entry);
    this.file(entry);
    if (this.shares === undefined) return;
    const share = this.shares.get(issuer) ?? { count: 0, kept: new ExpiryWheel(KEPT_BUCKET) };
    share.count++;
    this.shares.set(issuer, share);
  }

  private drop(entry: Entry): void {
    this.unfile(entry);
    this.events.delete(entry.key);
    if (entry.tokenKey !== entry.key) this.tokens.delete(entry.tokenKey);
    const share = this.shares?.get(entry.issuer);
    if (share !== undefined && --share.count === 0) this.shares?.delete(entry.issuer);
  }

  private change(entry: Entry, change: Partial<Entry>): void {
    this.unfile(entry);
    Object.assign(entry, change);
    this.file(entry);
  }

  /** Adds the entry to the wheel of its state. */
  private file(entry: Entry): void {
    if (!entry.isKept) return this.pending.add(entry, pendingUntil(entry));
    this.kept.add(entry, entry.keepUntil);
    this.shares?.get(entry.issuer)?.kept.add(entry, entry.keepUntil);
  }

  private unfile(entry: Entry): void {
    if (!entry.isKept) return this.pending.remove(entry, pendingUntil(entry));
    this.kept.remove(entry, entry.keepUntil);
    this.shares?.get(entry.issuer)?.kept.remove(entry, entry.keepUntil);
  }
}

function pendingUntil({ owner, leaseUntil, replayUntil }: Entry): number {
  return owner === undefined ? replayUntil : leaseUntil;
}

/** Whether its lease, or its time to be kept, has ended. */
function hasExpired({ owner, leaseUntil, keepUntil }: Entry, now: number): boolean {
  return (owner === undefined ? keepUntil : leaseUntil) <= now;
}

interface Bucket<Entry> {
  readonly entries: Set<Entry>;
  /** Position of {@link ExpiryWheel.take}; a new iterator would step over every entry that was removed before. */
  cursor?: Iterator<Entry>;
}

/**
 * Entries by the time at which they are due, in buckets of a fixed width.
 *
 * Adding and removing an entry take constant time, unless a bucket is inserted in the middle; that moves a list with one
 * number per bucket.
 */
class ExpiryWheel<Entry> {
  private readonly buckets = new Map<number, Bucket<Entry>>();
  /** Numbers of the buckets, the earliest first: their time in widths since the epoch. */
  private readonly order: number[] = [];

  /** @param width - milliseconds */
  constructor(private readonly width: number) {}

  add(entry: Entry, due: number): void {
    const number = Math.floor(due / this.width);
    const bucket = this.buckets.get(number) ?? this.insert(number);
    bucket.entries.add(entry);
  }

  /** @param due - as passed to `add` */
  remove(entry: Entry, due: number): void {
    this.buckets.get(Math.floor(due / this.width))?.entries.delete(entry);
  }

  /** Removes and returns an entry of the earliest bucket. */
  take(): Entry | undefined {
    const number = this.earliest();
    if (number === undefined) return undefined;
    const bucket = this.buckets.get(number)!;
    bucket.cursor ??= bucket.entries.values();
    const { value } = bucket.cursor.next() as { value: Entry };
    bucket.entries.delete(value);
    return value;
  }

  /** As {@link take}, if the whole time of the bucket has passed. */
  takeOverdue(now: number): Entry | undefined {
    const number = this.earliest();
    return number !== undefined && (number + 1) * this.width <= now ? this.take() : undefined;
  }

  /** The number of the earliest bucket with an entry; empty ones before it are removed. */
  private earliest(): number | undefined {
    for (;;) {
      const [number] = this.order;
      if (number === undefined || this.buckets.get(number)!.entries.size > 0) return number;
      this.buckets.delete(number);
      this.order.shift();
    }
  }

  private insert(number: number): Bucket<Entry> {
    const bucket: Bucket<Entry> = { entries: new Set() };
    this.buckets.set(number, bucket);
    // New buckets are nearly always the latest, so the search ends at once.
    let at = this.order.length;
    while (at > 0 && this.order[at - 1]! > number) at--;
    this.order.splice(at, 0, number);
    return bucket;
  }
}
