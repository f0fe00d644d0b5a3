import { BEFORE_BRACKETS, BRACE_BIT, CLOSING, endOfString, OPENING, QUOTE } from './json-text.js';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const REPLACEMENT = '\ufffd';

/**
 * Decodes UTF-8, refusing what is not; a byte order mark stays, so that JSON.parse refuses it.
 *
 * @returns the text, or `undefined`
 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  return Buffer.isBuffer(bytes) ? decodeUtf8In(bytes, bytes.length) : decodeFatally(bytes);
}

/** Decodes the first bytes of a Buffer as {@link decodeUtf8} does; a view of them would cost as much as decoding them. */
export function decodeUtf8In(bytes: Buffer, length: number): string | undefined {
  const text = bytes.toString('utf8', 0, length);
  // What is not UTF-8 leaves this character in the text, and next to no text has it of its own.
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
 * Tells whether objects and arrays nest more than so many levels, from their text and without parsing it.
 *
 * @param text - JSON, or what claims to be: of that, anything may be told
 */
export function textNestsDeeper(text: string, levels: number): boolean {
  // Most texts open no more objects and arrays than may nest, and are not looked through at all.
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

/** Tells whether a text has more opening brackets than that, those in strings included. */
export function opensMoreThan(text: string, limit: number): boolean {
  return opens(text, '{', limit) + opens(text, '[', limit) > limit;
}

/** Counts a bracket, those in strings included, up to one more than the limit. */
function opens(text: string, bracket: string, limit: number): number {
  let count = 0;
  for (let at = text.indexOf(bracket); at !== -1 && count <= limit; count++) {
    at = text.indexOf(bracket, at + 1);
  }
  return count;
}

/** What no data may have, whatever its members mean. */
export type StructureFault = 'too deep' | 'prototype member';

/** Whether a member turns a careless merge into prototype pollution: `__proto__`, and `constructor` with a `prototype` in it. */
export function replacesPrototype(name: string, member: unknown): boolean {
  if (name === '__proto__') return true;
  return (
    name === 'constructor' &&
    typeof member === 'object' &&
    member !== null &&
    Object.hasOwn(member, 'prototype')
  );
}

/**
 * Tells in one walk whether objects and arrays nest more than so many levels, counting the value itself as one, and
 * whether a member {@link replacesPrototype}.
 *
 * @param value - what JSON.parse has made; it is walked no deeper than the levels
 * @returns the fault that is met first
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
