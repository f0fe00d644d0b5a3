import { createHash, type Hash } from 'node:crypto';
import { Lanes } from '../replay/lanes.js';

/** Stand before a value, so that no two kinds of it are alike. */
const Kind = {
  text: 1,
  number: 2,
  true: 3,
  false: 4,
  null: 5,
  list: 6,
  object: 7,
  none: 8,
} as const;

const number = new Float64Array(1);
const halves = new Uint32Array(number.buffer);

/**
 * Stands for what an event says, in 64 bits that are the same whatever the order of an object's members: each member is
 * mixed by itself, and the members are added up. Putting them in order and digesting their text takes some four times as long,
 * and is then the dearest part of a large POST (benchmark `receive`).
 *
 * It is no digest: who chooses the contents can find two that are marked alike. That is the event's own
 * sender, whose second content is then answered as a copy instead of as a conflict. Neither is ever handled.
 *
 * @param value - what JSON.parse has made, nested no deeper than 64 levels; `undefined` for no data
 */
export function contentFingerprint(event: string, value: unknown): string {
  const mark = new Mark();
  mark.takeText(event);
  mark.take(value);
  return mark.toString();
}

class Mark extends Lanes {
  take(value: unknown): void {
    switch (typeof value) {
      case 'string':
        this.mix(Kind.text);
        return this.takeText(value);
      case 'number':
        // As their texts are: there is one 0.
        number[0] = value + 0;
        this.mix(Kind.number);
        this.mix(halves[0]!);
        return this.mix(halves[1]!);
      case 'boolean':
        return this.mix(value ? Kind.true : Kind.false);
      case 'object':
        if (value === null) return this.mix(Kind.null);
        if (Array.isArray(value)) return this.takeList(value);
        return this.takeMembers(value as Readonly<Record<string, unknown>>);
      default:
        this.mix(Kind.none);
    }
  }

  takeText(text: string): void {
    this.mixText(text);
    this.mix(text.length);
  }

  override toString(): string {
    return [scattered(this.high), scattered(this.low)]
      .map((half) => (half >>> 0).toString(16).padStart(8, '0'))
      .join('');
  }

  private takeList(items: readonly unknown[]): void {
    this.mix(Kind.list);
    for (const item of items) this.take(item);
    this.mix(items.length);
  }

  private takeMembers(members: Readonly<Record<string, unknown>>): void {
    const { high, low } = this;
    let [sumOfHigh, sumOfLow, count] = [0, 0, 0];
    for (const name in members) {
      this.high = Kind.object;
      this.low = Kind.object;
      this.takeText(name);
      this.take(members[name]);
      sumOfHigh += scattered(this.high);
      sumOfLow += scattered(this.low);
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

/** Has every bit depend on every other one, as sums want it. */
function scattered(bits: number): number {
  let mixed = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}

/** Starts the digest of an event whose data is octets, which follow. */
export function startFingerprint(event: string): Hash {
  return createHash('sha256').update(`${event}\n`);
}

/**
 * Stands for what happened, not for how it was sent: the same event may first come inline and then, after a
 * proxy refused so long a header, as a body, and a sender that builds it anew may order its members in
 * another way. JSON is therefore compared as its parsed value, an object being a set of members.
 */
export function fingerprint(event: string, data: unknown): string {
  if (Buffer.isBuffer(data)) return startFingerprint(event).update(data).digest('base64url');
  return contentFingerprint(event, data);
}
