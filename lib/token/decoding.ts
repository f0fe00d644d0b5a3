import { WebhookTokenError, type WebhookTokenErrorCode } from '../errors/webhook.error.js';
import { isKeyId } from './identifier.js';
import { MAX_DATA_DEPTH, MAX_TOKEN_BYTES, MAX_TOKEN_DEPTH } from './webhook-token.constants.js';

/** A token split at its dots. Nothing in it is authenticated. */
export interface CompactToken {
  /** Header, dot, payload: the input of the signature. */
  readonly signingInput: string;
  readonly header: string;
  readonly payload: string;
  readonly signature: string;
}

/**
 * Splits a compact token into its three parts.
 *
 * @throws {@link WebhookTokenError} `token_too_large` or `invalid_token`
 */
export function parseCompactToken(token: unknown): CompactToken {
  if (typeof token !== 'string') throw invalidToken();
  if (token.length > MAX_TOKEN_BYTES) throw tokenTooLarge();
  const first = token.indexOf('.');
  const second = token.indexOf('.', first + 1);
  if (first <= 0 || second <= first + 1 || second === token.length - 1) throw invalidToken();
  if (token.indexOf('.', second + 1) !== -1) throw invalidToken();
  return {
    signingInput: token.slice(0, second),
    header: token.slice(0, first),
    payload: token.slice(first + 1, second),
    signature: token.slice(second + 1),
  };
}

/** Members of a header that change its meaning: RFC 7515, section 4.1.11, RFC 7797, and `zip` of JWE. */
const UNSUPPORTED_EXTENSIONS = ['crit', 'b64', 'zip'] as const;

/** A header as far as it can be read, and what is wrong with it in every profile. */
interface ReadHeader {
  readonly header?: Readonly<Record<string, unknown>>;
  readonly problem?: string | undefined;
}

/** Reads the first part of a token. */
export function readHeader(segment: string): ReadHeader {
  const text = decodeBase64urlText(segment);
  if (text === undefined) return { problem: 'the header is not base64url of UTF-8' };
  const header = parseJson(text);
  if (!isObject(header)) return { problem: 'the header is not a JSON object' };
  return { header, problem: headerProblem(text, header) };
}

function headerProblem(
  text: string,
  header: Readonly<Record<string, unknown>>,
): string | undefined {
  if (scanJson(text, { distinct: 'outermost' })) return 'the header has a duplicate member';
  if (typeof header['alg'] !== 'string') return 'the header has no alg';
  const { kid } = header;
  if (kid !== undefined && !isKeyId(kid)) return 'the kid is not a valid key id';
  const extension = UNSUPPORTED_EXTENSIONS.find((name) => name in header);
  return extension === undefined ? undefined : `the header has ${extension}, which is refused`;
}

/** The claims of a token, parsed. */
export interface ClaimsJson {
  readonly text: string;
  readonly value: unknown;
}

/**
 * Reads the second part of a token.
 *
 * @returns `undefined` for anything but base64url of UTF-8 with at most so many members
 */
export function readClaims(segment: string, maxMembers: number): ClaimsJson | undefined {
  const text = decodeBase64urlText(segment);
  if (text === undefined || scanJson(text, { members: maxMembers })) return undefined;
  return { text, value: parseJson(text) };
}

/**
 * Refuses claims that JSON.parse accepts and that other parsers may read differently.
 *
 * @throws {@link WebhookTokenError} `invalid_claim`
 */
export function requireSoundStructure({ text, value }: ClaimsJson): void {
  if (scanJson(text, { distinct: 'outermost and webhook' })) {
    throw new WebhookTokenError('invalid_claim', 'the claims have a duplicate member');
  }
  const problem = structureProblem(value, MAX_TOKEN_DEPTH);
  if (problem !== undefined) throw new WebhookTokenError('invalid_claim', `the token ${problem}`);
}

/** The only thing a message says about a token whose signature is not verified; the code names the step. */
export function invalidToken(code: WebhookTokenErrorCode = 'invalid_token'): WebhookTokenError {
  return new WebhookTokenError(code, 'the token is invalid');
}

/** Thrown by the receiver and, so that its sender learns of it first, by the signer. */
export function tokenTooLarge(): WebhookTokenError {
  return new WebhookTokenError(
    'token_too_large',
    `the token is longer than ${MAX_TOKEN_BYTES} bytes: send the data in the body of a POST`,
  );
}

/**
 * Decodes canonical base64url (RFC 7515, section 2): no padding, white space or other characters, unused bits zero.
 *
 * @returns the bytes, or `undefined` for anything else
 */
export function decodeBase64url(text: string): Buffer | undefined {
  // Node skips or misreads anything else, so only a canonical string is encoded to itself.
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : undefined;
}

/**
 * Decodes base64url of UTF-8, with the strictness of {@link decodeBase64url} and {@link decodeUtf8}.
 *
 * @returns the string, or `undefined`
 */
export function decodeBase64urlText(text: string): string | undefined {
  const bytes = decodeBase64url(text);
  return bytes && decodeUtf8(bytes);
}

/** Encodes the UTF-8 of a string. */
export function encodeBase64urlText(text: string): string {
  return Buffer.from(text).toString('base64url');
}

/** Strict; a byte order mark is kept, so that JSON.parse refuses it. */
export const utf8: { decode(bytes: Uint8Array): string } = new TextDecoder('utf-8', {
  fatal: true,
  ignoreBOM: true,
});

/**
 * Decodes UTF-8 strictly.
 *
 * @returns the string, or `undefined` for invalid UTF-8
 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
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

/** Reports whether a value is an object other than an array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What JSON may contain, as far as its text shows it. */
interface JsonLimits {
  /** Names in objects and elements of arrays, at all levels. */
  readonly members?: number;
  /** Nesting of objects and arrays, the value itself included. */
  readonly levels?: number;
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
 * Checks JSON without parsing it: JSON.parse takes long for many members and deep nesting, and of two members with one
 * name it keeps the last.
 *
 * @param text - JSON; for anything else, the answer has no meaning
 * @returns the first limit that is exceeded
 */
export function scanJson(
  text: string,
  { members = Infinity, levels = Infinity, distinct }: JsonLimits,
): keyof JsonLimits | undefined {
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
        if (++depth > levels) return 'levels';
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
