import { hash } from 'node:crypto';
import { FastHash } from '../replay/fast-hash.js';

/**
 * Identifies the content of an event by the digest of its body.
 *
 * @param digest - `<algorithm>:<hex>`
 */
export function digestFingerprint(event: string, digest: string): string {
  return hash('sha256', `${event}\n${digest}`, 'base64url');
}

/**
 * Identifies the content of an event by its value, however it was sent: an event may first arrive in the token and then, after
 * a proxy refused the long header, as a body, and a sender may order its members differently.
 *
 * The 64-bit fingerprint does not depend on the order of members: each member is hashed by itself, and the hashes are added.
 * Sorting and digesting the members takes about four times as long (benchmark `receive`).
 *
 * It is not collision-resistant. Only the event's own sender can choose colliding data; the second event is then
 * acknowledged as a copy instead of refused as a conflict, and is not handled either way.
 *
 * @param value - from `JSON.parse`, nested at most 64 levels; `undefined` for no data
 */
export function contentFingerprint(event: string, value: unknown): string {
  const hash = new ContentHash();
  hash.addString(event);
  hash.add(value);
  return hash.toString();
}

/** Precedes each value, so that values of different types differ. */
const Kind = {
  string: 1,
  number: 2,
  true: 3,
  false: 4,
  null: 5,
  array: 6,
  object: 7,
  none: 8,
} as const;

const number = new Float64Array(1);
const halves = new Uint32Array(number.buffer);

class ContentHash extends FastHash {
  add(value: unknown): void {
    switch (typeof value) {
      case 'string':
        this.mix(Kind.string);
        return this.addString(value);
      case 'number':
        // JSON has one zero; `+ 0` turns -0 into it.
        number[0] = value + 0;
        this.mix(Kind.number);
        this.mix(halves[0]!);
        return this.mix(halves[1]!);
      case 'boolean':
        return this.mix(value ? Kind.true : Kind.false);
      case 'object':
        if (value === null) return this.mix(Kind.null);
        if (Array.isArray(value)) return this.addArray(value);
        return this.addMembers(value as Readonly<Record<string, unknown>>);
      default:
        this.mix(Kind.none);
    }
  }

  addString(value: string): void {
    this.mixString(value);
    this.mix(value.length);
  }

  override toString(): string {
    return `${hex(scramble(this.high))}-${hex(scramble(this.low))}`;
  }

  private addArray(items: readonly unknown[]): void {
    this.mix(Kind.array);
    for (const item of items) this.add(item);
    this.mix(items.length);
  }

  private addMembers(members: Readonly<Record<string, unknown>>): void {
    const { high, low } = this;
    let [sumOfHigh, sumOfLow, count] = [0, 0, 0];
    for (const name in members) {
      this.high = Kind.object;
      this.low = Kind.object;
      this.addString(name);
      this.add(members[name]);
      sumOfHigh += scramble(this.high);
      sumOfLow += scramble(this.low);
      count++;
    }
    this.high = high;
    this.low = low;
    this.mix(Kind.object);
    this.mix(sumOfHigh);
    this.mix(sumOfLow);
    this.mix(count);
  }
}

function hex(bits: number): string {
  return (bits >>> 0).toString(16);
}

/** Makes every bit depend on every other, so that sums of hashes do not cancel out. */
function scramble(bits: number): number {
  let mixed = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
