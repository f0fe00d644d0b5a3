import { generateKeyPairSync, sign } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { ecdsaFromDer } from '../../lib/token/keys/signing-key.js';

const SIZE = 32;

/** The DER of two integers whose bytes are used unchanged. */
function der(r: readonly number[], s: readonly number[], more: readonly number[] = []): Buffer {
  const integers = [0x02, r.length, ...r, 0x02, s.length, ...s, ...more];
  return Buffer.from([0x30, integers.length, ...integers]);
}

/** The only DER encoding of an integer. */
function encode(bytes: readonly number[]): number[] {
  const start = bytes.findIndex((byte) => byte !== 0);
  const digits = bytes.slice(start);
  return digits[0]! >= 0x80 ? [0, ...digits] : digits;
}

const full = (first: number): number[] => [first, ...Array<number>(SIZE - 1).fill(0xab)];

describe('an ECDSA signature in DER', () => {
  const number = fc
    .uint8Array({ minLength: SIZE, maxLength: SIZE })
    .filter((bytes) => bytes.some((byte) => byte !== 0))
    .map((bytes) => [...bytes]);

  it('is converted for any two numbers', () => {
    fc.assert(
      fc.property(number, number, (r, s) => {
        expect([...ecdsaFromDer(der(encode(r), encode(s)), SIZE)!]).toEqual([...r, ...s]);
      }),
    );
  });

  it('is padded with leading zeros', () => {
    const raw = ecdsaFromDer(der([1], [0, 0x80]), SIZE)!;

    expect(raw).toHaveLength(2 * SIZE);
    expect(raw[SIZE - 1]).toBe(1);
    expect(raw[2 * SIZE - 1]).toBe(0x80);
    expect(raw.reduce((sum, byte) => sum + byte)).toBe(0x81);
  });

  it.each([
    ['P-256', 32],
    ['P-384', 48],
  ])('from OpenSSL is converted for %s', (namedCurve, size) => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve });
    const made = sign('sha256', Buffer.from('x'), privateKey);

    expect(ecdsaFromDer(made, size)).toHaveLength(2 * size);
    expect(ecdsaFromDer(Buffer.concat([made, Buffer.of(0)]), size)).toBeUndefined();
  });

  it.each<[string, Buffer]>([
    ['nothing', Buffer.alloc(0)],
    ['an empty sequence', Buffer.from([0x30, 0])],
    ['a set', Buffer.from([0x31, 6, 2, 1, 1, 2, 1, 1])],
    ['one integer', Buffer.from([0x30, 3, 2, 1, 1])],
    ['three integers', der([1], [1], [2, 1, 1])],
    ['an element of another type', Buffer.from([0x30, 6, 4, 1, 1, 2, 1, 1])],
    ['a length that is too long', Buffer.from([0x30, 7, 2, 1, 1, 2, 1, 1])],
    ['a length that is too short', Buffer.from([0x30, 5, 2, 1, 1, 2, 1, 1])],
    ['a length in long form', Buffer.from([0x30, 0x81, 6, 2, 1, 1, 2, 1, 1])],
    ['an integer that ends after the sequence', Buffer.from([0x30, 6, 2, 1, 1, 2, 9, 1])],
    ['an integer that contains the other', Buffer.from([0x30, 6, 2, 4, 1, 2, 1, 1])],
    ['an integer of indefinite length', Buffer.from([0x30, 6, 2, 0x80, 1, 2, 1, 1])],
    ['an empty integer', Buffer.from([0x30, 5, 2, 0, 2, 1, 1])],
    ['a zero', der([0], [1])],
    ['a negative integer', der([0x80], [1])],
    ['a negative integer of full size', der(full(0xff), [1])],
    ['a leading zero that is not needed', der([0, 1], [1])],
    ['two leading zeros', der([0, 0], [1])],
    ['a number of another curve', der([1, ...full(0xab)], [1])],
    ['a number of another curve, with its sign byte', der([0, 0x80, ...full(0xab)], [1])],
    ['bytes after it', Buffer.concat([der([1], [1]), Buffer.of(0)])],
  ])('is refused if it is %s', (_, bytes) => {
    expect(ecdsaFromDer(bytes, SIZE)).toBeUndefined();
  });

  it('is never read past its end', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
        const raw = ecdsaFromDer(bytes, SIZE);
        expect(raw === undefined || raw.length === 2 * SIZE).toBe(true);
      }),
    );
  });
});
