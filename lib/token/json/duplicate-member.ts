import { isObject } from './json-object.js';
import { BEFORE_BRACKETS, BRACE_BIT, CLOSING, endOfString, OPENING, QUOTE } from './json-text.js';

const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;

/**
 * Tells whether a member stands twice in the outermost object, or in the object of one of its members:
 * JSON.parse drops the first of two, so the members in the text are counted against those in the value.
 *
 * @param text - valid JSON
 * @param value - what JSON.parse made of it
 * @param nested - a member whose object is looked into too
 */
export function hasDuplicateMember(text: string, value: unknown, nested?: string): boolean {
  if (!isObject(value)) return false;
  const inner = nested === undefined ? undefined : value[nested];
  const counted = countMembers(text, isObject(inner) ? nested : undefined);
  return (
    counted.outer !== Object.keys(value).length ||
    (isObject(inner) && counted.inner !== Object.keys(inner).length)
  );
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
