const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const SPACE = 0x20;

/** Brackets and braces differ in this bit only; digits, commas and colons all lie below `[`. */
const BRACE_BIT = 0x20;
const BEFORE_BRACKETS = 0x5a;
const OPENING = 0x7b;
const CLOSING = 0x7d;

/**
 * Finds the closing quote of a string.
 *
 * @param text - JSON
 * @param start - position of the opening quote
 * @returns `-1` if the string is not closed, so that the text is not JSON
 */
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

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const REPLACEMENT = '\ufffd';

/**
 * Decodes UTF-8 strictly. A byte order mark is kept, so that JSON.parse refuses it.
 *
 * @returns the string, or `undefined` for invalid UTF-8
 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  return Buffer.isBuffer(bytes) ? decodeUtf8In(bytes, bytes.length) : decodeFatally(bytes);
}

/** {@link decodeUtf8} for the first bytes of a Buffer; creating a view of them would take as long as decoding. */
export function decodeUtf8In(bytes: Buffer, length: number): string | undefined {
  const text = bytes.toString('utf8', 0, length);
  // Invalid UTF-8 leaves this character in the string, and hardly any valid string contains it.
  return text.includes(REPLACEMENT) ? decodeFatally(bytes.subarray(0, length)) : text;
}

function decodeFatally(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

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

/**
 * Reports whether objects and arrays nest deeper than allowed, without parsing the JSON.
 *
 * @param text - JSON; for anything else, the answer has no meaning
 */
export function textNestsDeeper(text: string, levels: number): boolean {
  // Most JSON has fewer objects and arrays than may nest; then there is nothing to measure.
  if (!opensMoreThan(text, levels)) return false;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = endOfString(text, i);
      if (i === -1) return false;
    } else if (code > BEFORE_BRACKETS) {
      const folded = code | BRACE_BIT;
      if (folded === OPENING && ++depth > levels) return true;
      if (folded === CLOSING) depth--;
    }
  }
  return false;
}

/** Reports whether a text has more opening brackets than the limit, also inside strings. */
export function opensMoreThan(text: string, limit: number): boolean {
  return occurrences(text, '{', limit) + occurrences(text, '[', limit) > limit;
}

/** Counts a character, also inside strings, up to one more than the limit. */
function occurrences(text: string, character: string, limit: number): number {
  let count = 0;
  for (let at = text.indexOf(character); at !== -1 && count <= limit; count++) {
    at = text.indexOf(character, at + 1);
  }
  return count;
}

/**
 * Reports whether JSON has more members than allowed: names in objects and elements of arrays, at all levels.
 * Parsing costs more for each of them than for each byte, so count them before parsing.
 *
 * @param text - JSON, or its bytes in UTF-8; for anything else, the answer has no meaning
 */
export function exceedsMembers(text: string | Uint8Array, limit: number): boolean {
  // A member takes at least two characters, as in `1,`. Most texts are too short to have so many.
  if (text.length <= 2 * limit) return false;
  const json = typeof text === 'string' ? text : latin1(text);
  // A comma or an opening bracket precedes every member. Native searches are ten times faster than the loop below.
  const commas = occurrences(json, ',', limit);
  if (commas <= limit && !opensMoreThan(json, limit - commas)) return false;
  let members = 0;
  let afterOpening = false;
  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i);
    if (code <= SPACE) continue;
    const isBracket = code > BEFORE_BRACKETS;
    // A comma announces another member; the first one of an object or array has none.
    if (code === COMMA || (afterOpening && !(isBracket && (code | BRACE_BIT) === CLOSING))) {
      if (++members > limit) return true;
    }
    afterOpening = isBracket && (code | BRACE_BIT) === OPENING;
    if (code === QUOTE) {
      i = endOfString(json, i);
      if (i === -1) return false;
    }
  }
  return false;
}

/** Every character that gives JSON its structure is ASCII, and no byte of another character is. */
function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
}

/** Reasons to refuse data of any kind. */
export type StructureFault = 'too deep' | 'prototype member';

/** Members that a careless merge turns into prototype pollution: `__proto__`, and `constructor` with a `prototype`. */
function replacesPrototype(name: string, member: unknown): boolean {
  if (name === '__proto__') return true;
  return (
    name === 'constructor' &&
    typeof member === 'object' &&
    member !== null &&
    Object.hasOwn(member, 'prototype')
  );
}

/**
 * Checks the nesting of objects and arrays, the value itself included, and looks for members that
 * {@link replacesPrototype}.
 *
 * @param value - a result of JSON.parse; it is visited no deeper than `levels`
 * @returns the first fault found
 */
export function structureFault(value: unknown, levels: number): StructureFault | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (levels === 0) return 'too deep';
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) {
      const fault = typeof item === 'object' ? structureFault(item, levels - 1) : undefined;
      if (fault !== undefined) return fault;
    }
    return undefined;
  }
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (replacesPrototype(name, member)) return 'prototype member';
    if (typeof member !== 'object' || member === null) continue;
    const fault = structureFault(member, levels - 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/**
 * Counts the names of all members by their colons. The count is too high if a string contains a quote followed by a
 * colon, and never too low. So if it equals the number of members of the parsed value, no member is a duplicate,
 * whatever escapes its name contains.
 *
 * A native search for colons takes a third of the time of a loop over the characters (benchmark `token`, 1 kB).
 *
 * @param text - valid JSON
 * @returns `NaN` for JSON with white space before a colon, which needs a closer look
 */
export function countNames(text: string): number {
  let count = 0;
  for (let colon = text.indexOf(':'); colon !== -1; colon = text.indexOf(':', colon + 1)) {
    const before = text.charCodeAt(colon - 1);
    if (before === QUOTE) count++;
    else if (before <= SPACE) return NaN;
  }
  return count;
}

/**
 * Counts the members of a value at all levels.
 *
 * @param value - a result of JSON.parse; it is visited no deeper than `levels`
 * @param cut - a part of the value whose members are checked but not counted
 * @returns `NaN`, which equals no count, for a value that nests deeper or has a member that {@link replacesPrototype}
 */
export function countSoundMembers(value: object, levels: number, cut?: object): number {
  if (value === cut) return Number.isNaN(countSoundMembers(value, levels)) ? NaN : 0;
  if (levels === 0) return NaN;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) {
      if (typeof item === 'object' && item !== null) {
        count += countSoundMembers(item, levels - 1, cut);
      }
    }
    return count;
  }
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (replacesPrototype(name, member)) return NaN;
    count++;
    if (typeof member === 'object' && member !== null) {
      count += countSoundMembers(member, levels - 1, cut);
    }
  }
  return count;
}

/** Reports whether a value is an object other than an array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const OPEN_BRACE = 0x7b;

/**
 * Reports whether the outermost object, or the object in one of its members, has a duplicate member. JSON.parse keeps
 * only the last of two, so the text then has more members than the value.
 *
 * @param text - valid JSON
 * @param value - the result of JSON.parse
 * @param nested - a member whose object is checked too
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
