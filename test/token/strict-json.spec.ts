import { describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { decodeUtf8 } from '../../lib/token/decoding.js';
import {
  parseJson,
  REPLACES_PROTOTYPE,
  scanJson,
  structureProblem,
  TOO_DEEP,
} from '../../lib/token/json.js';

/** JSON as a tree that, unlike a JavaScript object, can have duplicate members. */
type Tree =
  | { readonly kind: 'leaf'; readonly text: string }
  | { readonly kind: 'list'; readonly items: readonly Tree[] }
  | { readonly kind: 'object'; readonly members: readonly Member[] };

interface Member {
  readonly name: string;
  /** Written with a `\u` escape for each character. */
  readonly escaped: boolean;
  readonly value: Tree;
}

/**
 * No name is a single backslash: after JSON.parse of Node 24 has parsed one, it reads an escaped name at the same place in
 * an object of the same shape as that backslash.
 */
const NAMES = ['a', 'b', 'webhook', '', '"', 'a\\b', '{', 'é', '__proto__', 'x":1,"a'];
const TEXTS = ['', '"', '\\', '\\\\"', '{"a":[', '}]},', '":', ',"a":1'];

const { tree } = fc.letrec<{ tree: Tree; member: Member }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    fc
      .oneof(fc.constantFrom(...TEXTS), fc.integer(), fc.boolean(), fc.constant(null))
      .map((value): Tree => ({ kind: 'leaf', text: JSON.stringify(value) })),
    fc.array(tie('tree'), { maxLength: 3 }).map((items): Tree => ({ kind: 'list', items })),
    fc.array(tie('member'), { maxLength: 4 }).map((members): Tree => ({ kind: 'object', members })),
  ),
  member: fc.record({
    name: fc.constantFrom(...NAMES),
    escaped: fc.boolean(),
    value: tie('tree'),
  }),
}));

function write(node: Tree, space: string): string {
  if (node.kind === 'leaf') return node.text;
  if (node.kind === 'list') {
    return `[${space}${node.items.map((item) => write(item, space)).join(`${space},`)}${space}]`;
  }
  const members = node.members.map(
    ({ name, escaped, value }) =>
      `${space}${escaped ? escapedText(name) : JSON.stringify(name)}${space}:${space}${write(value, space)}`,
  );
  return `{${members.join(`${space},`)}${space}}`;
}

function escapedText(name: string): string {
  const units = Array.from({ length: name.length }, (_, i) => name.charCodeAt(i));
  return `"${units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')}"`;
}

function depthOfValue(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOfValue));
}

function hasTwice(node: Tree): boolean {
  return (
    node.kind === 'object' &&
    new Set(node.members.map(({ name }) => name)).size !== node.members.length
  );
}

function membersOf(node: Tree, name: string): Tree[] {
  return node.kind === 'object'
    ? node.members.filter((member) => member.name === name).map(({ value }) => value)
    : [];
}

const exceedsMembers = (text: string, members: number): boolean =>
  scanJson(text, { members }) === 'members';
const hasDuplicate = (text: string): boolean =>
  scanJson(text, { distinct: 'outermost' }) === 'distinct';
const hasDuplicateClaim = (text: string): boolean =>
  scanJson(text, { distinct: 'outermost and webhook' }) === 'distinct';

describe('scanJson, for names that must be distinct', () => {
  it('finds duplicate members of random JSON', () => {
    fc.assert(
      fc.property(tree, fc.constantFrom('', ' ', '\n\t'), (root, space) => {
        const text = write(root, space);
        expect(parseJson(text)).not.toBeUndefined();

        expect(hasDuplicate(text)).toBe(hasTwice(root));
        expect(hasDuplicateClaim(text)).toBe([root, ...membersOf(root, 'webhook')].some(hasTwice));
      }),
      { numRuns: 3_000 },
    );
  });

  it.each([
    ['{"a":1,"a":1}', true],
    ['{"a":1,"\\u0061":1}', true],
    ['{"a":{"a":1}}', false],
    ['{"a":{"b":1,"b":1}}', false],
    ['{"webhook":{"b":1,"b":1}}', true],
    ['{"webhook":{"b":{"c":1,"c":1}}}', false],
    ['{"x":{"webhook":{"b":1,"b":1}}}', false],
    ['{"webhook":[{"b":1,"b":1}]}', false],
    ['[{"a":1,"a":1}]', false],
    ['{"a":"\\\\","a":1}', true],
    ['{"a":"\\",\\"a\\":1"}', false],
  ])('%s: %s', (text, duplicate) => {
    expect(hasDuplicateClaim(text)).toBe(duplicate);
  });
});

function membersIn(node: Tree): number {
  if (node.kind === 'leaf') return 0;
  const values = node.kind === 'list' ? node.items : node.members.map(({ value }) => value);
  return values.reduce((sum, value) => sum + membersIn(value), values.length);
}

describe('scanJson, for a limit of members', () => {
  it('counts the members of every object and array', () => {
    fc.assert(
      fc.property(tree, fc.constantFrom('', ' ', '\n\t'), (root, space) => {
        const text = write(root, space);
        const members = membersIn(root);

        expect(exceedsMembers(text, members)).toBe(false);
        if (members === 0) return;
        expect(exceedsMembers(text, members - 1)).toBe(true);
      }),
      { numRuns: 1_000 },
    );
  });

  it.each([
    ['an object inside an array', '[{},{}]', 2],
    ['commas inside strings', '{"a":"1,2,3","b":"\\",,,"}', 2],
    ['a member that is listed twice', '{"a":1,"a":1}', 2],
    ['characters of several bytes', '["日本,語","Łódź"]', 2],
  ])('counts %s', (_, text, members) => {
    expect(exceedsMembers(text, members)).toBe(false);
    expect(exceedsMembers(text, members - 1)).toBe(true);
  });

  it('stops at a string without a closing quote', () => {
    expect(exceedsMembers('["no end,,,,', 1)).toBe(false);
  });
});

describe('structureProblem', () => {
  it('measures the nesting of random JSON', () => {
    fc.assert(
      fc.property(tree, (root) => {
        const value = parseJson(write(root, ''));
        const depth = depthOfValue(value);
        fc.pre(structureProblem(value, Infinity) === undefined);

        expect(structureProblem(value, depth)).toBeUndefined();
        if (depth > 0) expect(structureProblem(value, depth - 1)).toBe(TOO_DEEP);
      }),
    );
  });

  it('visits no level beyond the limit', () => {
    const deep = parseJson('['.repeat(1e6) + ']'.repeat(1e6));

    expect(structureProblem(deep, 64)).toBe(TOO_DEEP);
  });
});

describe('structureProblem, for members that would replace a prototype', () => {
  it.each([
    ['{"__proto__":1}', true],
    ['{"a":[{"__proto__":{}}]}', true],
    ['{"\\u005f_proto__":1}', true],
    ['{"constructor":{"prototype":{}}}', true],
    ['{"constructor":{"prototypes":{}}}', false],
    ['{"constructor":"ACME"}', false],
    ['{"constructor":null}', false],
    ['{"prototype":{}}', false],
    ['{"a":"__proto__"}', false],
    ['null', false],
  ])('%s: %s', (text, verdict) => {
    expect(structureProblem(JSON.parse(text), 64) === REPLACES_PROTOTYPE).toBe(verdict);
  });
});

describe('decodeUtf8', () => {
  it('decodes any string', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        expect(decodeUtf8(Buffer.from(text))).toBe(text);
      }),
    );
  });

  it.each([
    ['a lone continuation byte', [0x80]],
    ['an overlong encoding of a slash', [0xc0, 0xaf]],
    ['a surrogate', [0xed, 0xa0, 0x80]],
    ['an incomplete sequence', [0xe2, 0x82]],
    ['a code point above U+10FFFF', [0xf4, 0x90, 0x80, 0x80]],
  ])('refuses %s', (_, bytes) => {
    expect(decodeUtf8(Uint8Array.from(bytes))).toBeUndefined();
    expect(decodeUtf8(Buffer.from(bytes))).toBeUndefined();
  });

  it('accepts a replacement character that was sent as such', () => {
    expect(decodeUtf8(Buffer.from('a\ufffdb'))).toBe('a\ufffdb');
    expect(decodeUtf8(Buffer.from([0xef, 0xbf, 0xbd, 0x80]))).toBeUndefined();
  });

  it.each([Uint8Array, Buffer])('keeps a byte order mark, so that parsing refuses it', (bytes) => {
    const text = decodeUtf8(bytes.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d]));

    expect(text).toBe('\ufeff{}');
    expect(parseJson(text!)).toBeUndefined();
  });
});

describe('scanJson, skipping over strings', () => {
  it.each([
    ['white space before a colon', '{"a" :1,"a":2}', true],
    ['a name that is written with an escape', '{"a":1,"\\u0061":2}', true],
    ['a colon inside a string', '{"a":"b:c","d":"\\":"}', false],
    ['a long string', `{"a":"${'x'.repeat(5_000)}","a":1}`, true],
    ['characters whose bytes resemble quotes', '{"ĢĺĢ":1,"ĺ":"Ģĺ"}', false],
  ])('is not misled by %s', (_, text, duplicate) => {
    expect(hasDuplicate(text)).toBe(duplicate);
  });

  it('does not exhaust the stack on deep nesting', () => {
    const text = `{"a":${'['.repeat(20_000)}${']'.repeat(20_000)}}`;

    expect(hasDuplicate(text)).toBe(false);
  });
});
