import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import {
  decodeBase64url,
  decodeBase64urlText,
  encodeBase64urlText,
} from '../../lib/token/decoding.js';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'.split('');

describe('decodeBase64url', () => {
  it('decodes encoded bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const decoded = decodeBase64url(Buffer.from(bytes).toString('base64url'));

        expect(decoded?.equals(bytes)).toBe(true);
      }),
    );
  });

  it('accepts only strings that survive a round trip', () => {
    const characters = fc.oneof(
      { weight: 20, arbitrary: fc.constantFrom(...ALPHABET) },
      { weight: 1, arbitrary: fc.constantFrom('=', '+', '/', '\n', ' ', '.', '\u0000') },
      { weight: 1, arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }) },
    );
    fc.assert(
      fc.property(fc.string({ unit: characters, maxLength: 12 }), (text) => {
        const canonical = Buffer.from(text, 'base64url').toString('base64url') === text;

        expect(decodeBase64url(text) !== undefined).toBe(canonical);
      }),
      { numRuns: 5_000 },
    );
  });

  it('accepts one of the four encodings of each byte', () => {
    const texts = ALPHABET.flatMap((first) => ALPHABET.map((second) => first + second));

    expect(texts.filter((text) => decodeBase64url(text) !== undefined)).toHaveLength(256);
  });

  it('refuses every character outside the alphabet', () => {
    const accepted: string[] = [];
    for (let code = 0; code < 0x10000; code++) {
      const character = String.fromCharCode(code);
      if (decodeBase64url(`AA${character}A`) !== undefined) accepted.push(character);
    }

    expect(accepted.sort()).toEqual([...ALPHABET].sort());
  });
});

describe('decodeBase64urlText', () => {
  it('decodes encoded strings, whatever was decoded before', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 300 }), (text) => {
        expect(decodeBase64urlText(encodeBase64urlText(text))).toBe(text);
      }),
    );
  });

  it.each([
    ['padding', 'YWI='],
    ['unused bits', 'YWJ'],
    ['a character whose low byte is in the alphabet', 'ŁWJj'],
    ['the other alphabet', 'YW+j'],
    ['bytes that are not UTF-8', Buffer.from([0xc3]).toString('base64url')],
  ])('refuses %s', (_, text) => {
    expect(decodeBase64urlText(text)).toBeUndefined();
  });

  it.each([
    ['a string longer than any token', 'é'.repeat(20_000)],
    ['the longest string that is encoded in place', '€'.repeat(16_384)],
  ])('accepts %s', (_, text) => {
    expect(encodeBase64urlText(text)).toBe(Buffer.from(text).toString('base64url'));
  });
});
