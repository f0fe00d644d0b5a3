const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** What JSON.parse hides: it drops the first of two members, and does not say how deep the text nests. */
export interface JsonStructure {
  /** A member stands twice in the outermost object, or in the object of a member named by the caller. */
  readonly duplicate: boolean;
  /** Levels of objects and arrays. */
  readonly depth: number;
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Decodes UTF-8, refusing what is not; a byte order mark stays, so that JSON.parse refuses it.
 *
 * @returns the text, or `undefined`
 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * Parses JSON without letting an error out: V8's messages quote the text, which is somebody's payload.
 *
 * @returns the value, or `undefined`, which no JSON text gives
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/**
 * Looks at the text of an object that JSON.parse has accepted.
 *
 * @param text - valid JSON
 * @param nested - a member whose object is searched for duplicates too
 */
export function inspectJson(text: string, nested?: string): JsonStructure {
  let depth = 0;
  let deepest = 0;
  let duplicate = false;
  // Whether the object open at a level is one whose members are watched, and the members seen in it.
  const watched: (Set<string> | undefined)[] = [];
  let expectsKey = false;
  let lastKey = '';

  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      const end = endOfString(text, i);
      if (expectsKey) {
        const members = watched[depth];
        if (members !== undefined) {
          lastKey = keyOf(text.slice(i, end + 1));
          if (members.has(lastKey)) duplicate = true;
          members.add(lastKey);
        }
        expectsKey = false;
      }
      i = end;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth++;
      if (depth > deepest) deepest = depth;
      const isObject = code === OPEN_BRACE;
      watched[depth] =
        isObject && (depth === 1 || (depth === 2 && watched[1] !== undefined && lastKey === nested))
          ? new Set()
          : undefined;
      expectsKey = isObject;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      depth--;
      expectsKey = false;
    } else if (code === COMMA) {
      // In an object that nobody watches, keys are skipped like any other text.
      expectsKey = watched[depth] !== undefined;
    }
  }
  return { duplicate, depth: deepest };
}

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

function keyOf(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
}

/**
 * Finds members that turn a careless merge into prototype pollution: `__proto__`, and `constructor`
 * with a `prototype` in it.
 *
 * @param text - the JSON text the value was parsed from; the value is walked only where the text hints at them
 */
export function hasPrototypeMember(text: string, value: unknown): boolean {
  return /__proto__|constructor|\\u/.test(text) && findPrototypeMember(value);
}

function findPrototypeMember(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (Array.isArray(value)) return value.some(findPrototypeMember);
  if (Object.hasOwn(value, '__proto__')) return true;
  if (Object.hasOwn(value, 'constructor')) {
    const inner = (value as { constructor: unknown }).constructor;
    if (typeof inner === 'object' && inner !== null && Object.hasOwn(inner, 'prototype'))
      return true;
  }
  return Object.values(value).some(findPrototypeMember);
}
