import { createSecretKey } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { parseCompactToken } from '../../lib/token/decoding.js';
import { HmacKey } from '../../lib/token/keys/token-keys.js';

const key = new HmacKey('HS256', createSecretKey(Buffer.alloc(32, 7)), undefined);
const good = key.sign('{"alg":"HS256"}', '{}');

describe('HmacKey', () => {
  it.each([
    ['its last character outside the alphabet', `${good.slice(0, -1)}é`],
    [
      'its last character replaced by one with the same low byte',
      `${good.slice(0, -1)}${folded(good)}`,
    ],
    ['its last character missing', good.slice(0, -1)],
    ['an additional character', `${good}A`],
  ])('refuses a signature with %s after it has verified the right one', (_, token) => {
    expect(key.verify(parseCompactToken(good))).toBe(true);
    expect(key.verify(parseCompactToken(token))).toBe(false);
  });
});

/** A character beyond Latin-1 whose low byte is that of the text's last. */
function folded(text: string): string {
  return String.fromCharCode(0x100 + text.charCodeAt(text.length - 1));
}
