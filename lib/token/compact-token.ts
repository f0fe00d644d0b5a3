import { isKeyId } from './identifier.js';
import { decodeBase64urlText } from './json/base64url.js';
import { parseClaimsJson } from './json/claims-json.js';
import { hasDuplicateMember, isObject, parseJson } from './json/strict-json.js';
import { invalidToken, tokenTooLarge } from './token-refusals.js';
import { MAX_TOKEN_BYTES } from './webhook-token.constants.js';

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
export const UNSUPPORTED_EXTENSIONS = ['crit', 'b64', 'zip'] as const;

/** The parts of a token that can be read without a key. Nothing in it is authenticated. */
export interface TokenAnatomy {
  /** Absent unless the token has three parts. */
  readonly compact?: CompactToken;
  readonly header?: Readonly<Record<string, unknown>>;
  /** What is wrong with the header in every profile. */
  readonly headerFault?: string;
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
  const headerText = decodeBase64urlText(compact.header);
  const header = headerText === undefined ? undefined : parseJson(headerText);
  const headerFault = faultOfHeader(headerText, header);
  const claimsText = decodeBase64urlText(compact.payload);
  const claims = claimsText === undefined ? undefined : parseClaimsJson(claimsText).value;
  return {
    compact,
    ...(isObject(header) && { header }),
    ...(headerFault !== undefined && { headerFault }),
    ...(isObject(claims) && { claims }),
  };
}

function faultOfHeader(text: string | undefined, header: unknown): string | undefined {
  if (text === undefined) return 'the header is not base64url of UTF-8';
  if (!isObject(header)) return 'the header is not a JSON object';
  if (hasDuplicateMember(text, header)) return 'the header has a duplicate member';
  if (typeof header['alg'] !== 'string') return 'the header has no alg';
  const { kid } = header;
  if (kid !== undefined && !isKeyId(kid)) return 'the kid is not a valid key id';
  const extension = UNSUPPORTED_EXTENSIONS.find((name) => name in header);
  return extension === undefined ? undefined : `the header has ${extension}, which is refused`;
}
