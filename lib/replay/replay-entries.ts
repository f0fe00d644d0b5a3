import { FastHash } from './fast-hash.js';
import type { ReplayClaim, ReplayReservation } from './replay-store.js';

/**
 * Shortens a fingerprint to 53 bits, an eighth of its memory.
 *
 * The worst effect of a collision is that other content under a known id is answered as a duplicate instead of a conflict. Neither is
 * handled.
 */
export function fingerprintMark(fingerprint: string): number {
  const lanes = new FastHash();
  lanes.mixString(fingerprint);
  return (lanes.high >>> 0) * 2 ** 21 + (lanes.low >>> 11);
}

const CHUNK_BITS = 12;
const CHUNK_MASK = (1 << CHUNK_BITS) - 1;

/** Values by slot, in chunks that are allocated on demand, so that growing copies nothing. */
export class SlotValues<Value> {
  private readonly chunks: (Value | undefined)[][] = [];

  get(slot: number): Value | undefined {
    return this.chunks[slot >>> CHUNK_BITS]?.[slot & CHUNK_MASK];
  }

  set(slot: number, value: Value | undefined): void {
    const chunk = (this.chunks[slot >>> CHUNK_BITS] ??= new Array<Value | undefined>(
      CHUNK_MASK + 1,
    ).fill(undefined));
    chunk[slot & CHUNK_MASK] = value;
  }
}

/** The states of an entry, in order. */
export const EntryState = {
  /** Being handled; ends with its lease. */
  reserved: 1,
  /** Handled, and its token may still verify. */
  protected: 2,
  /** Handled, its token has expired, and kept to recognise the sender's retries. */
  kept: 3,
} as const;

interface EventKeys {
  readonly key: string;
  readonly tokenKey: string;
}

/** The reservation while there is one; afterwards only the keys, which are mostly one string. */
type Occupant = ReplayReservation | EventKeys | string;

/** The entries as columns, one slot each: an object per entry would take three times the memory and slow the garbage collector. */
export class ReplayEntries {
  readonly state: Uint8Array;
  /** Only while reserved. All times are epoch milliseconds. */
  readonly leaseUntil: Float64Array;
  /** The latest of all claims on the event. */
  readonly replayUntil: Float64Array;
  /** Never before `replayUntil`. */
  readonly keepUntil: Float64Array;
  readonly fingerprint: Float64Array;
  private readonly occupants = new SlotValues<Occupant>();
  private readonly free: number[] = [];
  private used = 0;

  constructor(slots: number) {
    this.state = new Uint8Array(slots);
    this.leaseUntil = new Float64Array(slots);
    this.replayUntil = new Float64Array(slots);
    this.keepUntil = new Float64Array(slots);
    this.fingerprint = new Float64Array(slots);
  }

  get size(): number {
    return this.used - this.free.length;
  }

  /** Allocates a slot; the caller ensures that one is free. */
  take(reservation: ReplayReservation, fingerprint: number): number {
    const slot = this.free.pop() ?? this.used++;
    this.state[slot] = EntryState.reserved;
    this.fingerprint[slot] = fingerprint;
    this.replayUntil[slot] = this.keepUntil[slot] = 0;
    this.prolong(slot, reservation.claim);
    this.occupants.set(slot, reservation);
    return slot;
  }

  giveBack(slot: number): void {
    this.occupants.set(slot, undefined);
    this.free.push(slot);
  }

  /** The keys of the event and of its token. */
  keysOf(slot: number): EventKeys {
    const occupant = this.occupants.get(slot)!;
    if (typeof occupant === 'string') return { key: occupant, tokenKey: occupant };
    return 'claim' in occupant ? occupant.claim : occupant;
  }

  reservationOf(slot: number): ReplayReservation | undefined {
    const occupant = this.occupants.get(slot)!;
    return typeof occupant === 'object' && 'claim' in occupant ? occupant : undefined;
  }

  /** Whether the claim asks to keep the event longer than it is kept. */
  isOutlivedBy(slot: number, { replayUntil, keepUntil }: ReplayClaim): boolean {
    return replayUntil > this.replayUntil[slot]! || keepUntil > this.keepUntil[slot]!;
  }

  /** Keeps the event at least as long as the claim asks for. */
  prolong(slot: number, claim: ReplayClaim): void {
    const replayUntil = Math.max(this.replayUntil[slot]!, claim.replayUntil);
    this.replayUntil[slot] = replayUntil;
    this.keepUntil[slot] = Math.max(this.keepUntil[slot]!, replayUntil, claim.keepUntil);
  }

  /** Ends the reservation after success. */
  settle(slot: number): void {
    const { key, tokenKey } = this.keysOf(slot);
    this.occupants.set(slot, tokenKey === key ? key : { key, tokenKey });
    this.state[slot] = EntryState.protected;
  }

  /** Whether neither its lease nor its time to be kept has ended. */
  isAlive(slot: number, now: number): boolean {
    const end = this.state[slot] === EntryState.reserved ? this.leaseUntil : this.keepUntil;
    return end[slot]! > now;
  }
}
