import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { contentFingerprint } from '../../lib/request/content-fingerprint.js';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** The same value, with the members of all its objects the other way round. */
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

/** What the mark stands for: the value's text, with all members in order. */
function canonicalJson(value: Json): string {
  return JSON.stringify(value, (_name, member: Json) =>
    typeof member !== 'object' || member === null || Array.isArray(member)
      ? member
      : Object.fromEntries(Object.entries(member).toSorted(([a], [b]) => (a < b ? -1 : 1))),
  );
}

const mark = (value: unknown): string => contentFingerprint('order.created', value);

describe('contentFingerprint', () => {
  it('is the same whatever the order of members', () => {
    fc.assert(
      fc.property(json, (value) => {
        expect(mark(reversed(value))).toBe(mark(value));
      }),
    );
  });

  it('is the same for two values if, and only if, they say the same', () => {
    const seen = new Map<string, string>();
    fc.assert(
      fc.property(json, (value) => {
        const text = canonicalJson(value);
        expect(seen.get(mark(value)) ?? text).toBe(text);
        seen.set(mark(value), text);
      }),
      { numRuns: 20_000 },
    );
    expect(new Set(seen.values()).size).toBe(seen.size);
  });

  it('is another one for each small change', () => {
    const order = { id: 'ord_1', lines: [{ sku: 'a', quantity: 1, price: 12.5 }], paid: false };
    const marks = new Set<string>();
    for (let n = 0; n < 10_000; n++) {
      marks.add(mark({ ...order, id: `ord_${n}` }));
      marks.add(mark({ ...order, [`paid${n}`]: false }));
      marks.add(mark({ ...order, lines: [{ sku: 'a', quantity: n, price: 12.25 }] }));
      marks.add(mark({ ...order, lines: [{ sku: 'a', quantity: 12.25, price: n }] }));
    }
    expect(marks.size).toBe(40_000);
  });

  it.each([
    ['{"b":1,"a":{"d":2,"c":3}}', '{ "a" : { "c" : 3, "d" : 2 }, "b" : 1 }'],
    ['[{"b":1,"a":2}]', '[{"a":2,"b":1}]'],
    ['{"10":1,"9":2,"x":3}', '{"x":3,"9":2,"10":1}'],
    ['{"a":1.0}', '{"a":1}'],
    ['{"a":-0}', '{"a":0}'],
    ['{"a":"\\u0041"}', '{"a":"A"}'],
  ])('takes %s for %s', (one, other) => {
    expect(mark(JSON.parse(one))).toBe(mark(JSON.parse(other)));
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
  ])('tells %s from %s', (one, other) => {
    expect(mark(JSON.parse(one))).not.toBe(mark(JSON.parse(other)));
  });

  it('tells no value from every value, and one event from another', () => {
    expect(mark(undefined)).not.toBe(mark(null));
    expect(contentFingerprint('a.b', {})).not.toBe(contentFingerprint('a.c', {}));
    expect(contentFingerprint('a.b', 'c')).not.toBe(contentFingerprint('a.bc', ''));
  });
});
