import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import {
  parseClaimsJson,
  isEvidentlySound,
  requireSoundStructure,
} from '../../lib/token/json/claims-json.js';
import { hasDuplicateMember, structureFault } from '../../lib/token/json/strict-json.js';

const nested = (levels: number) => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;
const claims = (data: string) => `{"iss":"i","webhook":{"event":"a.b","data":${data}}}`;
/** Long enough for its data to be parsed separately. */
const long = (data: string) => claims(`{"x":"${'x'.repeat(2_000)}","y":${data}}`);

describe('isEvidentlySound', () => {
  it.each([
    ['plain claims', claims('{"a":[{"b":1},{"b":2}]}')],
    ['long data', long('{"a":1}')],
    ['escapes in names and strings', claims('{"a\\"b":"c\\nd","\\u0062":"\\\\"}')],
    ['white space after colons and commas', '{"iss": "i", "webhook": {"event": "a.b"}}'],
    ['the maximum nesting', claims(nested(64))],
    ['colons inside strings', claims('{"at":"2026-01-01T10:00:00Z","url":"https://a:1"}')],
  ])('recognises %s', (_, text) => {
    expect(isEvidentlySound(parseClaimsJson(text))).toBe(true);
  });

  it.each([
    ['a duplicate name, one written with an escape', claims('{"a":1,"\\u0061":1}')],
    ['a duplicate name, one with white space before its colon', claims('{"a" :1,"b":1,"b":1}')],
    ['a duplicate claim beside long data', `{"iss":"i",${long('1').slice(1)}`],
    ['one level too many', claims(nested(65))],
    ['one level too many in long data', long(nested(64))],
    ['a member that replaces a prototype', claims('{"__proto__":{}}')],
    ['a member that replaces a prototype in long data', long('{"constructor":{"prototype":{}}}')],
  ])('does not recognise %s', (_, text) => {
    expect(isEvidentlySound(parseClaimsJson(text))).toBe(false);
  });

  it('recognises no claims that requireSoundStructure refuses', () => {
    const name = fc.constantFrom(
      '"a"',
      '"\\u0061"',
      '"\\\\"',
      '""',
      '"\\":"',
      '":"',
      '"__proto__"',
    );
    const value = fc.constantFrom('1', '{}', '":"', '"\\":\\":"', '{"a":1}', '[{"a":1,"a":1}]');
    const members = fc
      .array(fc.tuple(name, fc.constantFrom(':', ': ', ' :'), value), { maxLength: 4 })
      .map((written) => `{${written.map((parts) => parts.join('')).join(',')}}`);
    const text = fc
      .tuple(members, members)
      .map(([outer, inner]) => `{"webhook":${inner},"more":[${outer}],${outer.slice(1)}`)
      .map((written) => written.replace(',}', '}'));
    fc.assert(
      fc.property(text, (one) => {
        const json = parseClaimsJson(one);
        if (!isEvidentlySound(json)) return;

        expect(hasDuplicateMember(json.outline, json.value, 'webhook')).toBe(false);
        expect(structureFault(json.value, 66)).toBeUndefined();
      }),
      { numRuns: 3_000 },
    );
  });
});

describe('requireSoundStructure', () => {
  it.each([
    ['accepts a duplicate member inside data', claims('{"a":1,"a":1}'), undefined],
    ['accepts a string that starts with a colon', claims('{"a":":"}'), undefined],
    ['accepts white space before a colon', claims('{"a" : 1}'), undefined],
    ['reports a duplicate member', '{"a":1,"a":1}', 'duplicate'],
    ['reports the depth', claims(nested(65)), '64 levels'],
    ['reports a member that replaces a prototype', long('{"__proto__":1}'), 'prototype'],
  ])('%s', (_, text, message) => {
    const check = () => {
      requireSoundStructure(parseClaimsJson(text));
    };
    if (message === undefined) expect(check).not.toThrow();
    else expect(check).toThrow(message);
  });
});
