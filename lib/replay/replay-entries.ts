import { Lanes } from './lanes.js';
import type { ReplayClaim, ReplayReservation } from './replay-store.js';

/**
 * Shortens a fingerprint to 53 bits, an eighth of its memory.
 *
 * What a collision could do, by chance or by design, is to have a second content under a known id answered
 * as a copy of the first instead of as a conflict. Neither is ever handled.
 */
export function fingerprintMark(fingerprint: string): number {
  const lanes = new Lanes();
  lanes.mixText(fingerprint);
  return (lanes.high >>> 0) * 2 ** 21 + (lanes.low >>> 11);
}

const CHUNK_BITS = 12;
const CHUNK_MASK = (1 << CHUNK_BITS) - 1;

/** Values by slot number, in chunks made when they are first needed: growing never copies what is there. */
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

/** The states of an entry, in the order it passes through them. */
export const EntryState = {
  /** Being handled; ended when its lease has. */
  reserved: 1,
  /** Handled, and its token may still verify. */
  protected: 2,
  /** Handled, and kept to recognise the sender's retries. */
  kept: 3,
} as const;

interface EventKeys {
  readonly key: string;
  readonly tokenKey: string;
}

/** The reservation while there is one; then no more than is needed to forget the event: one text, mostly. */
type Occupant = ReplayReservation | EventKeys | string;

/**
 * The remembered events as columns, a slot each: an object for every one would take three times the
 * memory, and the garbage collector would have to look at them all.
 */
export class ReplayEntries {
  readonly state: Uint8Array;
  /** Meaningful while reserved only; like the other times in epoch milliseconds. */
  readonly leaseUntil: Float64Array;
  /** The latest of all claims that were made on the event. */
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

  /** Takes a slot; the caller has made sure that there is one. */
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

  /** The keys of the event, and of the token it came with. */
  keysOf(slot: number): EventKeys {
    const occupant = this.occupants.get(slot)!;
    if (typeof occupant === 'string') return { key: occupant, tokenKey: occupant };
    return 'claim' in occupant ? occupant.claim : occupant;
  }

  reservationOf(slot: number): ReplayReservation | undefined {
    const occupant = this.occupants.get(slot)!;
    return typeof occupant === 'object' && 'claim' in occupant ? occupant : undefined;
  }

  /** Whether the claim wants the event remembered for longer than it is. */
  isOutlivedBy(slot: number, { replayUntil, keepUntil }: ReplayClaim): boolean {
    return replayUntil > this.replayUntil[slot]! || keepUntil > this.keepUntil[slot]!;
  }

  /** Remembers the event for as long as the claim wants it, too. */
  prolong(slot: number, claim: ReplayClaim): void {
    const replayUntil = Math.max(this.replayUntil[slot]!, claim.replayUntil);
    this.replayUntil[slot] = replayUntil;
    this.keepUntil[slot] = Math.max(this.keepUntil[slot]!, replayUntil, claim.keepUntil);
  }

  /** Ends the reservation by success. */
  settle(slot: number): void {
    const { key, tokenKey } = this.keysOf(slot);
    this.occupants.set(slot, tokenKey === key ? key : { key, tokenKey });
    this.state[slot] = EntryState.protected;
  }

  /** Whether the entry still says anything: a lease that ended, and a time of keeping, leave nothing. */
  isAlive(slot: number, now: number): boolean {
    const end = this.state[slot] === EntryState.reserved ? this.leaseUntil : this.keepUntil;
    return end[slot]! > now;
  }
}
