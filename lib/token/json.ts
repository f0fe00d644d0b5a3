import { MAX_DATA_DEPTH } from './webhook-token.constants.js';

/**
 * Parses JSON without throwing: V8's error messages quote the JSON, which may be a payload.
 *
 * @returns the value, or `undefined` for anything but JSON
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Reports whether a value is an object other than an array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What JSON may contain, as far as its text shows it. */
interface JsonLimits {
  /** Names in objects and elements of arrays, at all levels. */
  readonly members?: number;
  /** Whose names must be distinct: the outermost object's, or also those of the object in its member `webhook`. */
  readonly distinct?: 'outermost' | 'outermost and webhook';
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const SPACE = 0x20;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Checks JSON without parsing it: JSON.parse takes long for many members, and of two members with one name it keeps the last. Each
 * level of nesting has a member.
 *
 * @param text - JSON; for anything else, the answer has no meaning
 * @returns the first limit that is exceeded
 */
export function scanJson(
  text: string,
  { members = Infinity, distinct }: JsonLimits,
): keyof JsonLimits | undefined {
  // A member takes two characters, such as `1,`.
  if (distinct === undefined && text.length <= 2 * members) return undefined;
  /** The names so far of each open object whose names must be distinct, by level. */
  const names: (Set<string> | undefined)[] = [];
  let outermostName: string | undefined;
  let expectsName = false;
  let depth = 0;
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    switch (code) {
      case QUOTE: {
        const end = endOfString(text, i);
        if (end === -1) return undefined;
        const known = expectsName ? names[depth] : undefined;
        expectsName = false;
        if (known !== undefined) {
          const name = nameAt(text, i, end);
          if (known.has(name)) return 'distinct';
          known.add(name);
          if (depth === 1) outermostName = name;
        }
        i = end;
        break;
      }
      case COMMA:
        if (++count > members) return 'members';
        expectsName = true;
        break;
      case OPEN_BRACE:
      case OPEN_BRACKET: {
        depth++;
        // A comma announces another member; the first one of an object or array has none.
        if (!isEmpty(text, i) && ++count > members) return 'members';
        expectsName = true;
        const isCompared =
          (depth === 1 && distinct !== undefined) ||
          (depth === 2 && distinct === 'outermost and webhook' && outermostName === 'webhook');
        names[depth] = isCompared && code === OPEN_BRACE ? new Set() : undefined;
        break;
      }
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        depth--;
    }
  }
  return undefined;
}

/** Reports whether an object or array is closed at once. */
function isEmpty(text: string, opening: number): boolean {
  let next = opening + 1;
  while (text.charCodeAt(next) <= SPACE) next++;
  const code = text.charCodeAt(next);
  return code === CLOSE_BRACE || code === CLOSE_BRACKET;
}

/** Finds the closing quote of a string; `-1` if it has none. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (text.charCodeAt(end - 1) === BACKSLASH && isEscaped(text, end)) {
    end = text.indexOf('"', end + 1);
  }
  return end;
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes++;
  return backslashes % 2 === 1;
}

function nameAt(text: string, start: number, end: number): string {
  const name = text.slice(start + 1, end);
  return name.includes('\\') ? String(parseJson(`"${name}"`)) : name;
}

export const TOO_DEEP = `nests more than ${MAX_DATA_DEPTH} levels`;
export const REPLACES_PROTOTYPE =
  'has a member that would replace a prototype: __proto__, or prototype in constructor';

/**
 * Checks the nesting of objects and arrays, the value itself included, and looks for members that a careless merge turns
 * into prototype pollution: `__proto__`, and `constructor` with a `prototype`.
 *
 * @param value - a result of JSON.parse; it is visited no deeper than `levels`
 * @returns the first problem found, as the end of a sentence about the data
 */
export function structureProblem(value: unknown, levels: number): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (levels === 0) return TOO_DEEP;
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (name === '__proto__') return REPLACES_PROTOTYPE;
    if (name === 'constructor' && isObject(member) && Object.hasOwn(member, 'prototype')) {
      return REPLACES_PROTOTYPE;
    }
    const problem = structureProblem(member, levels - 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}
