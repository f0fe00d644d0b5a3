import { isObject } from './json-object.js';

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;

/** Brackets and braces differ in this bit only; digits, commas and colons all lie below `[`. */
const BRACE_BIT = 0x20;
const BEFORE_BRACKETS = 0x5a;
const OPENING = 0x7b;
const CLOSING = 0x7d;

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

function keyOf(text: string, start: number, end: number): string {
  const key = text.slice(start + 1, end);
  return key.includes('\\') ? (JSON.parse(text.slice(start, end + 1)) as string) : key;
}

/**
 * Tells whether objects and arrays nest more than so many levels, counting the value itself as one.
 *
 * @param value - what JSON.parse has made; it is walked no deeper than the levels
 */
export function nestsDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  if (Array.isArray(value)) return value.some((item) => nestsDeeper(item, levels - 1));
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (typeof member === 'object' && nestsDeeper(member, levels - 1)) return true;
  }
  return false;
}

/**
 * Tells the same as {@link nestsDeeper} of a value from its text, without parsing it.
 *
 * @param text - valid JSON
 */
export function textNestsDeeper(text: string, levels: number): boolean {
  // Most texts open no more objects and arrays than may nest, and are not looked through at all.
  if (opens(text, '{', levels) + opens(text, '[', levels) <= levels) return false;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) i = endOfString(text, i);
    else if (code > BEFORE_BRACKETS) {
      const folded = code | BRACE_BIT;
      if (folded === OPENING && ++depth > levels) return true;
      if (folded === CLOSING) depth--;
    }
  }
  return false;
}

/** Counts a bracket, those in strings included, up to one more than the limit. */
function opens(text: string, bracket: string, limit: number): number {
  let count = 0;
  for (let at = text.indexOf(bracket); at !== -1 && count <= limit; count++) {
    at = text.indexOf(bracket, at + 1);
  }
  return count;
}

/**
 * Finds members that turn a careless merge into prototype pollution: `__proto__`, and `constructor`
 * with a `prototype` in it.
 *
 * @param text - the JSON text the value was parsed from; the value is walked only where the text hints at them
 */
export function hasPrototypeMember(text: string, value: unknown): boolean {
  return hintsAtPrototype(text) && findPrototypeMember(value);
}

/** Tells cheaply whether a JSON text could have a member that {@link hasPrototypeMember} finds. */
export function hintsAtPrototype(text: string): boolean {
  return text.includes('__proto__') || text.includes('constructor') || text.includes('\\u');
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
