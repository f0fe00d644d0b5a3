import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { isEventName } from './event-name.js';
import { isIdentifier } from './identifier.js';
import { type CompactToken, parseCompactToken, readClaims, readHeader } from './decoding.js';
import { isObject } from './json.js';
import { isAudience } from './validate-claims.js';
import { FIRST_MILLISECOND_TIMESTAMP, type WebhookProfile } from './webhook-token.constants.js';

/** Every field, in the order in which differences are reported: an earlier one usually explains the later ones. */
const FIELDS = [
  'tokenSha256',
  'id',
  'jti',
  'txn',
  'event',
  'issuer',
  'audience',
  'subject',
  'alg',
  'kid',
  'profile',
  'issuedAt',
  'expiresAt',
  'hash',
  'method',
  'contentType',
  'bodyBytes',
] as const satisfies readonly (keyof WebhookReceipt)[];

/**
 * Lists the differences between a request as sent and as received.
 *
 * @param sent - from `publisher.send()` or `publisher.sign()`
 * @param received - from `WebhookVerifier.explain()`, or another sender's receipt
 * @returns the differing fields with both values, `undefined` for a side without the field; empty if the request arrived unchanged
 */
export function compareReceipts(
  sent: Partial<WebhookReceipt>,
  received: Partial<WebhookReceipt> & { readonly authenticated?: boolean },
): {
  readonly field: keyof WebhookReceipt;
  readonly sent?: unknown;
  readonly received?: unknown;
}[] {
  return FIELDS.filter((field) => differ(field, sent[field], received[field])).map((field) => ({
    field,
    sent: sent[field],
    received: received[field],
  }));
}

/** A field in which two receipts differ. */
export type ReceiptDifference = ReturnType<typeof compareReceipts>[number];

function differ(field: keyof WebhookReceipt, sent: unknown, received: unknown): boolean {
  // A receiver that could not verify the token does not know its wire format.
  if (field === 'profile' && (sent === undefined || received === undefined)) return false;
  return !isDeepStrictEqual(sent, received);
}

/**
 * What a sender and a receiver can compare about one request, as JSON: the claims of the token without its data, and how
 * the request was sent. Safe to log, to store and to send.
 */
export interface WebhookReceipt {
  /** The event's id: `txn`, else `jti`. */
  readonly id: string;
  /** The token's own id, a new one for each attempt. */
  readonly jti: string;
  readonly txn?: string;
  readonly event: string;
  readonly issuer: string;
  readonly audience?: string | readonly string[];
  readonly subject?: string;
  readonly alg: string;
  readonly kid?: string;
  readonly profile: WebhookProfile;
  readonly method: string;
  /** ISO 8601. */
  readonly issuedAt: string;
  /** ISO 8601. */
  readonly expiresAt: string;
  /** Digest of the body in the token, in lower case. */
  readonly hash?: string;
  /** Bytes of the body; 0 for HEAD. */
  readonly bodyBytes: number;
  readonly contentType?: string;
  /** SHA-256 of the compact token, hex: shows whether both saw the same token without revealing it. */
  readonly tokenSha256: string;
}

/** The receipt of an unauthenticated token, which may lack any field. */
type ReadReceipt = Partial<WebhookReceipt> &
  Pick<WebhookReceipt, 'method' | 'bodyBytes' | 'tokenSha256'>;

/** What a receipt contains besides the token's claims. */
interface ReceiptFacts {
  readonly method: string;
  readonly bodyBytes: number;
  readonly contentType?: string | undefined;
  /** Absent if the wire format is unknown. */
  readonly profile?: WebhookProfile | undefined;
}

const ALGORITHM = /^[A-Za-z0-9-]{1,16}$/;
const METHOD = /^[A-Z]{1,16}$/;
const HASH = /^[A-Za-z0-9-]{1,12}:[0-9A-Fa-f]{64,128}$/;
const MEDIA_TYPE = /^[\x20-\x7E]{1,255}$/;

/** The receipt of a token that was signed by this process, so no field is missing. */
export function receiptOf(
  token: string,
  facts: ReceiptFacts & Pick<WebhookReceipt, 'profile'>,
): WebhookReceipt {
  return readReceipt(token, facts) as WebhookReceipt;
}

/** Reads the receipt of an unauthenticated token; fields of a wrong form are left out. */
export function readReceipt(token: string, facts: ReceiptFacts): ReadReceipt {
  const { header = {}, claims = {} } = readTokenAnatomy(token);
  const { jti, txn, iss, sub, aud, iat, exp, webhook: claim } = claims;
  const webhook = isObject(claim) ? claim : {};
  const all: Record<keyof WebhookReceipt, unknown> = {
    id: only(isIdentifier, txn) ?? only(isIdentifier, jti),
    jti: only(isIdentifier, jti),
    txn: only(isIdentifier, txn),
    event: only(isAnyEventName, webhook['event']),
    issuer: only(isIdentifier, iss),
    audience: only(isAudience, aud),
    subject: only(isIdentifier, sub),
    alg: matching(ALGORITHM, header['alg']),
    kid: only(isIdentifier, header['kid']),
    profile: facts.profile,
    method: matching(METHOD, facts.method) ?? '?',
    issuedAt: isoTime(iat),
    expiresAt: isoTime(exp),
    hash: matching(HASH, webhook['hash'])?.toLowerCase(),
    bodyBytes: facts.bodyBytes,
    contentType: matching(MEDIA_TYPE, facts.contentType),
    tokenSha256: createHash('sha256').update(token).digest('hex'),
  };
  const present = Object.entries(all).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as unknown as ReadReceipt;
}

/** The parts of a token that can be read without a key. Nothing in it is authenticated. */
export interface TokenAnatomy {
  /** Absent unless the token has three parts. */
  readonly compact?: CompactToken;
  readonly header?: Readonly<Record<string, unknown>> | undefined;
  /** What is wrong with the header in every profile. */
  readonly headerProblem?: string | undefined;
  /** Absent unless they are one JSON object in UTF-8. */
  readonly claims?: Readonly<Record<string, unknown>> | undefined;
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
    header,
    headerProblem: problem,
    claims: isObject(claims) ? claims : undefined,
  };
}

function only<T>(is: (value: unknown) => value is T, value: unknown): T | undefined {
  return is(value) ? value : undefined;
}

/** The rule of the drafts, which includes that of the specification. */
function isAnyEventName(name: unknown): name is string {
  return isEventName(name, 'swt-draft-00');
}

function matching(format: RegExp, value: unknown): string | undefined {
  return typeof value === 'string' && format.test(value) ? value : undefined;
}

function isoTime(seconds: unknown): string | undefined {
  return typeof seconds === 'number' &&
    Number.isFinite(seconds) &&
    seconds >= 0 &&
    seconds < FIRST_MILLISECOND_TIMESTAMP
    ? new Date(seconds * 1_000).toISOString()
    : undefined;
}
