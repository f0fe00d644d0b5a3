import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { decodeBase64url } from '../../lib/token/base64url.js';

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'.split('');

describe('decodeBase64url', () => {
  it('gives back what was encoded', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const decoded = decodeBase64url(Buffer.from(bytes).toString('base64url'));

        expect(decoded?.equals(bytes)).toBe(true);
      }),
    );
  });

  it('takes a text exactly where encoding the bytes again gives it back', () => {
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

  it('takes one of the four texts of each byte', () => {
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
