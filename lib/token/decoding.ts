import { WebhookTokenError, type WebhookTokenErrorCode } from '../errors/webhook.error.js';
import { isKeyId } from './identifier.js';
import { isObject, parseJson, scanJson, structureProblem } from './json.js';
import { MAX_TOKEN_BYTES, MAX_TOKEN_DEPTH } from './webhook-token.constants.js';

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
 * The claims of a token whose signature holds.
 *
 * @param json - of {@link readClaims}, with the same limit
 * @throws {@link WebhookTokenError} `invalid_token`, `invalid_claim`
 */
export function soundClaims(
  json: ClaimsJson | undefined,
  maxMembers: number,
): Readonly<Record<string, unknown>> {
  if (json === undefined || !isObject(json.value)) {
    throw new WebhookTokenError(
      'invalid_token',
      `the claims must be one JSON object in UTF-8 with at most ${maxMembers} members`,
    );
  }
  requireSoundStructure(json);
  return json.value;
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

export function encodeBase64urlText(text: string): string {
  return Buffer.from(text).toString('base64url');
}

/** Base64 without its padding. */
export function unpadded(base64: string): string {
  return base64.replace(/(?<!=)=+$/, '');
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

/** Short, if it begins as JSON does in base64url; a host name may have three short parts too. */
const COMPACT_TOKEN = /(?<![\w-])(?:e[wy][\w-]{6,}\.[\w-]{8,}|[\w-]{16,}\.[\w-]{16,})\.[\w-]*/g;

/** Replaces whatever looks like a compact token. The time is linear in the length of the string. */
export function withoutTokens(text: string): string {
  return text.replace(COMPACT_TOKEN, '[token]');
}
