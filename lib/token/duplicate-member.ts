import { isObject } from './json-object.js';
import { BEFORE_BRACKETS, BRACE_BIT, CLOSING, endOfString, OPENING, QUOTE } from './json-text.js';
import { MAX_TOKEN_DEPTH } from './webhook-token.constants.js';

const SPACE = 0x20;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;

/**
 * Tells whether a member stands twice in the outermost object, or in the object of one of its members:
 * JSON.parse drops the first of two, so the members in the text are counted against those in the value.
 *
 * @param text - valid JSON
 * @param value - what JSON.parse made of it
 * @param nested - a member whose object is looked into too
 * @param cut - a part of the value for which the text has a stand-in without members
 */
export function hasDuplicateMember(
  text: string,
  value: unknown,
  nested?: string,
  cut?: object,
): boolean {
  if (!isObject(value)) return false;
  // Most texts have as many names, all levels taken together, as the value has members.
  if (countNames(text) === membersOf(value, cut)) return false;
  const inner = nested === undefined ? undefined : value[nested];
  const counted = countMembers(text, isObject(inner) ? nested : undefined);
  return (
    counted.outer !== Object.keys(value).length ||
    (isObject(inner) && counted.inner !== Object.keys(inner).length)
  );
}

/** Characters of a text whose names are counted here; the outline of claims is shorter. */
const MOST_CHARACTERS = 4_096;
const room = Buffer.allocUnsafeSlow(MOST_CHARACTERS * 3);

/**
 * Counts the names of a text by their colons (benchmark `token`, 300 B and 1 kB): in its bytes, which are read
 * three times as fast as characters. Without a backslash no quote stands within a string, so that one with a
 * colon right behind it always ends a name.
 *
 * @returns `undefined` for a text with escapes, or with room before a colon, which takes a closer look
 */
function countNames(text: string): number | undefined {
  if (text.length > MOST_CHARACTERS || text.includes('\\')) return undefined;
  const length = room.write(text);
  let count = 0;
  for (let i = 1; i < length; i++) {
    if (room[i] !== COLON) continue;
    const before = room[i - 1]!;
    if (before === QUOTE) count++;
    else if (before <= SPACE) return undefined;
  }
  return count;
}

/** @returns `NaN`, which equals nothing, for a value that nests too deep to be walked safely */
function membersOf(value: object, cut: object | undefined, levels = MAX_TOKEN_DEPTH): number {
  if (value === cut) return 0;
  if (levels === 0) return NaN;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) {
      if (typeof item === 'object' && item !== null) count += membersOf(item, cut, levels - 1);
    }
    return count;
  }
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    count++;
    if (typeof member === 'object' && member !== null) count += membersOf(member, cut, levels - 1);
  }
  return count;
}

function countMembers(text: string, nested: string | undefined): { outer: number; inner: number } {
  const counted = { outer: 0, inner: 0 };
  let depth = 0;
  // Members are counted at level 1, and at level 2 within the nested object.
  let countsInner = false;
  let expectsKey = false;
  let lastKeyIsNested = false;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      const end = endOfString(text, i);
      if (expectsKey && depth === 1) {
        counted.outer++;
        lastKeyIsNested = nested !== undefined && keyOf(text, i, end) === nested;
      } else if (expectsKey && countsInner && depth === 2) {
        counted.inner++;
      }
      expectsKey = false;
      i = end;
    } else if (code === COMMA) {
      expectsKey = depth === 1 || (countsInner && depth === 2);
    } else if (code > BEFORE_BRACKETS) {
      const folded = code | BRACE_BIT;
      if (folded === OPENING) {
        depth++;
        if (depth === 2) countsInner = lastKeyIsNested && code === OPEN_BRACE;
        expectsKey = code === OPEN_BRACE && (depth === 1 || (depth === 2 && countsInner));
      } else if (folded === CLOSING) {
        depth--;
        expectsKey = false;
      }
    }
  }
  return counted;
}

function keyOf(text: string, start: number, end: number): string {
  const key = text.slice(start + 1, end);
  return key.includes('\\') ? (JSON.parse(text.slice(start, end + 1)) as string) : key;
}
