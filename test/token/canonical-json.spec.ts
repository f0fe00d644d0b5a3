import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { canonicalJson } from '../../lib/token/canonical-json.js';

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

describe('canonicalJson', () => {
  it('gives the same text whatever the order of members', () => {
    fc.assert(
      fc.property(json, (value) => {
        expect(canonicalJson(reversed(value))).toBe(canonicalJson(value));
      }),
    );
  });

  it('gives a text that says the same as the value', () => {
    fc.assert(
      fc.property(json, (value) => {
        // JSON has one zero.
        const written = JSON.parse(JSON.stringify(value)) as Json;
        expect(JSON.parse(canonicalJson(value))).toEqual(written);
      }),
    );
  });

  it.each([
    ['{"b":1,"a":{"d":2,"c":3}}', '{ "a" : { "c" : 3, "d" : 2 }, "b" : 1 }'],
    ['[{"b":1,"a":2}]', '[{"a":2,"b":1}]'],
    ['{"10":1,"9":2,"x":3}', '{"x":3,"9":2,"10":1}'],
    ['{"a":1.0}', '{"a":1}'],
    ['{"a":"\\u0041"}', '{"a":"A"}'],
  ])('takes %s for %s', (one, other) => {
    expect(canonicalJson(JSON.parse(one))).toBe(canonicalJson(JSON.parse(other)));
  });

  it.each([
    ['[1,2]', '[2,1]'],
    ['{"a":1}', '{"a":"1"}'],
    ['{"a":{"b":1}}', '{"a":{},"b":1}'],
    ['{"a":null}', '{}'],
    ['{"0":1}', '[1]'],
    ['"{}"', '{}'],
  ])('tells %s from %s', (one, other) => {
    expect(canonicalJson(JSON.parse(one))).not.toBe(canonicalJson(JSON.parse(other)));
  });

  it('is empty for no value', () => {
    expect(canonicalJson(undefined)).toBe('');
  });
});
