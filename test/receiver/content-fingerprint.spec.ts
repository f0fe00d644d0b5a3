import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { contentFingerprint } from '../../lib/receiver/reception.js';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** The same value, with the members of every object in reverse order. */
function reversed(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(reversed);
  const members = Object.entries(value).toReversed();
  return Object.fromEntries(members.map(([name, member]) => [name, reversed(member)]));
}

const json = fc
  .jsonValue({ maxDepth: 4 })
  .map((value) => value as Json)
  .filter((value) => !JSON.stringify(value).includes('__proto__'));

/** The JSON of a value with sorted members: two values are equal if these are. */
function canonicalJson(value: Json): string {
  return JSON.stringify(value, (_name, member: Json) =>
    typeof member !== 'object' || member === null || Array.isArray(member)
      ? member
      : Object.fromEntries(Object.entries(member).toSorted(([a], [b]) => (a < b ? -1 : 1))),
  );
}

const fingerprintOf = (value: unknown): string => contentFingerprint('order.created', value);

describe('contentFingerprint', () => {
  it('does not depend on the order of members', () => {
    fc.assert(
      fc.property(json, (value) => {
        expect(fingerprintOf(reversed(value))).toBe(fingerprintOf(value));
      }),
    );
  });

  it('is equal for two values if and only if the values are equal', () => {
    const seen = new Map<string, string>();
    fc.assert(
      fc.property(json, (value) => {
        const text = canonicalJson(value);
        expect(seen.get(fingerprintOf(value)) ?? text).toBe(text);
        seen.set(fingerprintOf(value), text);
      }),
      { numRuns: 5_000 },
    );
    expect(new Set(seen.values()).size).toBe(seen.size);
  });

  it('changes with every small change of the data', () => {
    const order = { id: 'ord_1', lines: [{ sku: 'a', quantity: 1, price: 12.5 }], paid: false };
    const fingerprints = new Set<string>();
    for (let n = 0; n < 10_000; n++) {
      fingerprints.add(fingerprintOf({ ...order, id: `ord_${n}` }));
      fingerprints.add(fingerprintOf({ ...order, [`paid${n}`]: false }));
      fingerprints.add(
        fingerprintOf({ ...order, lines: [{ sku: 'a', quantity: n, price: 12.25 }] }),
      );
      fingerprints.add(
        fingerprintOf({ ...order, lines: [{ sku: 'a', quantity: 12.25, price: n }] }),
      );
    }
    expect(fingerprints.size).toBe(40_000);
  });

  it.each([
    ['{"b":1,"a":{"d":2,"c":3}}', '{ "a" : { "c" : 3, "d" : 2 }, "b" : 1 }'],
    ['[{"b":1,"a":2}]', '[{"a":2,"b":1}]'],
    ['{"10":1,"9":2,"x":3}', '{"x":3,"9":2,"10":1}'],
    ['{"a":1.0}', '{"a":1}'],
    ['{"a":-0}', '{"a":0}'],
    // Handlers get the same number.
    ['{"a":9007199254740992}', '{"a":9007199254740993}'],
    ['{"a":1e400}', '{"a":1e500}'],
    ['{"a":"\\u0041"}', '{"a":"A"}'],
  ])('is equal for %s and %s', (one, other) => {
    expect(fingerprintOf(JSON.parse(one))).toBe(fingerprintOf(JSON.parse(other)));
  });

  it.each([
    ['[1,2]', '[2,1]'],
    ['[1,-1]', '[-1,1]'],
    ['[[1],2]', '[1,[2]]'],
    ['["ab","c"]', '["a","bc"]'],
    ['[1]', '[-1]'],
    ['[]', '[null]'],
    ['[]', '{}'],
    ['{"a":1}', '{"a":"1"}'],
    ['{"a":true}', '{"a":1}'],
    ['{"a":1,"b":2}', '{"a":2,"b":1}'],
    ['{"a":{"b":1}}', '{"a":{},"b":1}'],
    ['{"a":null}', '{}'],
    ['{"0":1}', '[1]'],
    ['"{}"', '{}'],
    ['null', '""'],
    ['{"a":1e400}', '{"a":null}'],
    ['{"a":1e400}', '{"a":-1e400}'],
    ['{"a":1e400}', '{"a":1e308}'],
    ['{"a":1e400}', '{"a":"Infinity"}'],
  ])('differs for %s and %s', (one, other) => {
    expect(fingerprintOf(JSON.parse(one))).not.toBe(fingerprintOf(JSON.parse(other)));
  });

  it('differs for undefined and null, and for different event names', () => {
    expect(fingerprintOf(undefined)).not.toBe(fingerprintOf(null));
    expect(contentFingerprint('a.b', {})).not.toBe(contentFingerprint('a.c', {}));
    expect(contentFingerprint('a.b', 'c')).not.toBe(contentFingerprint('a.bc', ''));
  });
});
