import { describe, expect, it } from '@jest/globals';
import { readClaims, requireSoundStructure } from '../../lib/token/decoding.js';

const nested = (levels: number) => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;
const claims = (data: string) => `{"iss":"i","webhook":{"event":"a.b","data":${data}}}`;
const long = (data: string) => claims(`{"x":"${'x'.repeat(2_000)}","y":${data}}`);

const read = (text: string, maxMembers = 100) =>
  readClaims(Buffer.from(text).toString('base64url'), maxMembers);

describe('requireSoundStructure', () => {
  it.each([
    ['plain claims', claims('{"a":[{"b":1},{"b":2}]}')],
    ['a duplicate member inside data', claims('{"a":1,"a":1}')],
    ['a string that starts with a colon', claims('{"a":":"}')],
    ['white space before a colon', claims('{"a" : 1}')],
    ['escapes in names and strings', claims('{"a\\"b":"c\\nd","\\u0062":"\\\\"}')],
    ['the maximum nesting', claims(nested(64))],
    ['names of the claims in the data', claims('{"iss":1,"webhook":{"event":1},"event":1}')],
    ['one name in the claims and in webhook', '{"event":1,"webhook":{"event":"a.b"}}'],
    ['the same names in another claim', '{"webhook":{"x":1},"more":{"x":1,"x":2}}'],
  ])('accepts %s', (_, text) => {
    expect(() => requireSoundStructure(read(text)!)).not.toThrow();
  });

  it.each([
    ['a claim that is listed twice', '{"a":1,"a":1}', 'duplicate'],
    ['a name that is also written with an escape', '{"a":1,"\\u0061":1}', 'duplicate'],
    ['webhook that is listed twice', '{"webhook":{},"webhook":{}}', 'duplicate'],
    [
      'the event that is listed twice',
      '{"webhook":{"event":"a.b","data":{},"event":"a.b"}}',
      'duplicate',
    ],
    [
      'data that is listed twice',
      `{"webhook":{"data":{},"data":{"x":"${'x'.repeat(2_000)}"}}}`,
      'duplicate',
    ],
    [
      'a member of an escaped webhook that is listed twice',
      '{"w\\u0065bhook":{"a":1,"a":1}}',
      'duplicate',
    ],
    [
      'a claim that is listed twice, around long data',
      `{"iss":"i",${long('1').slice(1)}`,
      'duplicate',
    ],
    ['one level too many', claims(nested(65)), '64 levels'],
    ['one level too many in long data', long(nested(64)), '64 levels'],
    ['a member that replaces a prototype', claims('{"__proto__":{}}'), 'prototype'],
    [
      'a member that replaces a prototype in long data',
      long('{"constructor":{"prototype":{}}}'),
      'prototype',
    ],
  ])('refuses %s', (_, text, message) => {
    expect(() => requireSoundStructure(read(text)!)).toThrow(
      expect.objectContaining({ code: 'invalid_claim', message: expect.stringContaining(message) }),
    );
  });
});

describe('readClaims', () => {
  it('refuses one member more than allowed', () => {
    const text = claims('{"a":[1,2]}');

    expect(read(text, 7)?.value).toEqual(JSON.parse(text));
    expect(read(text, 6)).toBeUndefined();
  });

  it('has no value for anything but JSON', () => {
    expect(read(claims('{"a":}'))?.value).toBeUndefined();
    expect(readClaims('a b', 100)).toBeUndefined();
  });
});
