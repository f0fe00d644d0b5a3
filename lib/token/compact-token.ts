import { isKeyId } from './identifier.js';
import { decodeBase64urlText } from './json/base64url.js';
import {
  isObject,
  parseJson,
  scanJson,
  structureProblem,
  type StructureProblem,
} from './json/strict-json.js';
import { WebhookTokenError } from '../errors/webhook.error.js';
import { invalidToken, tokenTooLarge } from './token-refusals.js';
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

const MESSAGES: Readonly<Record<StructureProblem, string>> = {
  'too deep': `the claims nest more than ${MAX_DATA_DEPTH} levels of data`,
  'prototype member': 'the claims have a member that would replace a prototype',
};

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
  if (problem !== undefined) throw new WebhookTokenError('invalid_claim', MESSAGES[problem]);
}

/** The parts of a token that can be read without a key. Nothing in it is authenticated. */
export interface TokenAnatomy {
  /** Absent unless the token has three parts. */
  readonly compact?: CompactToken;
  readonly header?: Readonly<Record<string, unknown>>;
  /** What is wrong with the header in every profile. */
  readonly headerProblem?: string | undefined;
  /** Absent unless they are one JSON object in UTF-8. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** Reads as much of a token as possible, to explain a refusal; never throws. */
export function readTokenAnatomy(token: string): TokenAnatomy {
  let compact: CompactToken;
  try {
    compact = parseCompactToken(token);
  } catch {
    return {};
  }
  const { header, problem } = readHeader(compact.header);
  const claims = readClaims(compact.payload, Infinity)?.value;
  return {
    compact,
    ...(header !== undefined && { header }),
    headerProblem: problem,
    ...(isObject(claims) && { claims }),
  };
}
