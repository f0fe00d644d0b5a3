import { WebhookPayloadError } from '../errors/webhook.error.js';
import { utf8 } from './decoding.js';
import { parseJson, scanJson, structureProblem } from './json.js';
import {
  createDigest,
  hashMismatch,
  hashRequired,
  type PayloadHash,
  samePayloadHash,
  type WebhookDigest,
} from './payload-hash.js';
import { rulesOf } from './profiles/profile.js';
import type { WebhookClaim } from './webhook-claims.interface.js';
import {
  DEFAULT_PROFILE,
  type HashAlgorithm,
  MAX_DATA_DEPTH,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** What a verified token requires of the request's body. */
export type PayloadRule =
  /** HEAD has no body; the payload is the claim's data. */
  | { readonly kind: 'no-body' }
  | DigestRule
  /** The token does not authenticate a body, so it must be empty. */
  | { readonly kind: 'empty' }
  /** The token does not authenticate a body, and the receiver accepts one anyway (`requireHash: false`). */
  | { readonly kind: 'unverified' };

/** The body must match these digests: one, or two if the token has those of both formats. */
interface DigestRule {
  readonly kind: 'digest';
  readonly hashes: readonly PayloadHash[];
  /** Bytes of the body, which Content-Length must declare too; in wire formats whose tokens name the size. */
  readonly size?: number;
  /** For an empty body with the right digest: the payload is the claim's data, there is none, or it is refused. */
  readonly emptyBody: 'data' | 'none' | 'refused';
}

/** Chunks that are kept as they arrived. */
const MOST_APART = 256;

/**
 * The bytes of a body, as they arrive. They are joined now and then: a chunk of one byte takes hundreds of bytes of memory, and a sender
 * chooses the chunks.
 */
export class ByteChunks {
  /** Bytes. */
  length = 0;
  private chunks: Buffer[] = [];
  /** The number of chunks at the beginning that are joined. */
  private joined = 0;

  add(chunk: Buffer): void {
    this.length += chunk.length;
    this.chunks.push(chunk);
    if (this.chunks.length - this.joined < MOST_APART) return;
    this.chunks.push(Buffer.concat(this.chunks.splice(this.joined)));
    this.joined++;
  }

  /** Removes the chunks. */
  take(): readonly Buffer[] {
    const { chunks } = this;
    this.chunks = [];
    this.joined = 0;
    this.length = 0;
    return chunks;
  }

  /** The bytes; those of a single chunk are not copied. */
  bytes(): Buffer {
    return this.chunks.length === 1 ? this.chunks[0]! : Buffer.concat(this.chunks, this.length);
  }
}

/**
 * Computes the digests that a rule requires in one pass over the body; without a hash in the token, the SHA-256 that
 * identifies the content.
 */
export class BodyDigests {
  private readonly running: readonly WebhookDigest[];

  constructor(rule: PayloadRule) {
    this.running = algorithmsOf(rule).map((algorithm) => createDigest(algorithm));
  }

  update(chunk: Uint8Array): this {
    for (const digest of this.running) digest.update(chunk);
    return this;
  }

  /** Finishes the computation: `<algorithm>:<hex>` for each algorithm. */
  digests(): readonly string[] {
    return this.running.map((digest) => digest.digest());
  }
}

const FOR_IDENTITY: readonly HashAlgorithm[] = ['sha256'];

function algorithmsOf(rule: PayloadRule): readonly HashAlgorithm[] {
  if (rule.kind === 'unverified') return FOR_IDENTITY;
  if (rule.kind !== 'digest') return [];
  return [...new Set(rule.hashes.map(({ algorithm }) => algorithm))];
}

/** Where the event's data is. */
export interface VerifiedPayload {
  /** `body`: the request's body. `data`: the claim's data. `none`: the event has no data. */
  readonly source: 'body' | 'data' | 'none';
  /** Whether the token authenticates the body; `true` if there is none. */
  readonly bodyVerified: boolean;
}

/**
 * @param length - bytes of the body
 * @param computed - digests of the body by {@link BodyDigests}
 * @throws {@link WebhookPayloadError} `hash_mismatch`, `hash_required` or `hash_unsupported`
 */
export function checkPayload(
  claim: WebhookClaim,
  rule: PayloadRule,
  length: number,
  computed: readonly string[],
): VerifiedPayload {
  const inline = claim.data === undefined ? 'none' : 'data';
  switch (rule.kind) {
    case 'no-body':
      return { source: inline, bodyVerified: true };
    case 'digest': {
      const holds =
        (rule.size === undefined || rule.size === length) &&
        rule.hashes.every((hash) => computed.some((one) => samePayloadHash(hash, one)));
      if (!holds) throw hashMismatch();
      if (length > 0) return { source: 'body', bodyVerified: true };
      if (rule.emptyBody === 'refused') {
        throw new WebhookPayloadError(
          'hash_unsupported',
          'the body is empty, and this wire format allows webhook.hash only with a body: leave it out',
        );
      }
      return { source: rule.emptyBody === 'none' ? 'none' : inline, bodyVerified: true };
    }
    case 'empty':
      if (length > 0) throw hashRequired();
      return { source: inline, bodyVerified: true };
    case 'unverified':
      return length > 0
        ? { source: 'body', bodyVerified: false }
        : { source: inline, bodyVerified: true };
  }
}

const UTF8 = /^utf-?8$/i;
const JSON_TYPE = /^(?:application\/json|[^\s;/]+\/[^\s;]+\+json)$/;

/** Whether a content type is JSON: `application/json`, or a `+json` type of RFC 6839. */
export function isJsonType(contentType: string | undefined): boolean {
  return contentType !== undefined && JSON_TYPE.test(mediaType(contentType));
}

/**
 * Parses a verified JSON body as strictly as data in a token.
 *
 * @param maxMembers - names in objects and elements of arrays, at all levels; counted before parsing, because an object
 *   of 500,000 names holds the event loop for seconds
 * @throws {@link WebhookPayloadError} `unsupported_encoding` for an unknown charset, `invalid_payload` for anything that is
 *   not safe JSON; the message never quotes the body
 */
export function parseJsonPayload(bytes: Buffer, contentType: string, maxMembers: number): unknown {
  const text = decode(bytes, charset(contentType));
  if (scanJson(text, { members: maxMembers })) {
    throw invalidPayload(
      `the body has more than ${maxMembers} members; maxJsonMembers of the receiver sets the limit`,
    );
  }
  const value = parseJson(text);
  if (value === undefined) throw invalidPayload('the body is not JSON');
  const problem = structureProblem(value, MAX_DATA_DEPTH);
  if (problem !== undefined) throw invalidPayload(`the body ${problem}`);
  return value;
}

function decode(bytes: Buffer, label: string): string {
  let decoder = utf8;
  try {
    if (!UTF8.test(label)) decoder = new TextDecoder(label, { fatal: true, ignoreBOM: true });
  } catch {
    throw new WebhookPayloadError(
      'unsupported_encoding',
      'the charset of the body is not supported: send JSON as UTF-8',
    );
  }
  try {
    return decoder.decode(bytes);
  } catch {
    throw invalidPayload('the body is not valid in the charset that its content type names');
  }
}

/** The media type without parameters, in lower case. */
export function mediaType(contentType: string): string {
  return (contentType.split(';', 1)[0] ?? '').trim().toLowerCase();
}

/** Whether a content type declares no charset, or UTF-8. */
export function isUtf8(contentType: string): boolean {
  return UTF8.test(charset(contentType));
}

/** Whether a content type is JSON in UTF-8. */
export function isUtf8Json(contentType: string): boolean {
  return isJsonType(contentType) && isUtf8(contentType);
}

/** RFC 8259 requires UTF-8; another charset is decoded if the sender declares it. */
function charset(contentType: string): string {
  return /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? 'utf-8';
}

/** The data is authentic, and cannot be read within the limits. */
export function invalidPayload(message: string): WebhookPayloadError {
  return new WebhookPayloadError('invalid_payload', message);
}

/**
 * Checks a complete body against a verified token.
 *
 * @param request.body - the exact bytes after transfer decoding, before any other decoding
 * @param request.requireHash - refuse a body without a digest in the token; default `true`. The draft profiles always
 *   refuse it
 * @param request.profile - the verified token's `profile`; default `'webhook-token'`
 * @throws {@link WebhookPayloadError} `hash_required`, `hash_mismatch`, `hash_unsupported` or
 *   `method_not_allowed`
 */
export function verifyWebhookPayload(
  claims: { readonly webhook: WebhookClaim },
  request: {
    readonly method: 'HEAD' | 'POST';
    readonly body?: Uint8Array | undefined;
    readonly requireHash?: boolean | undefined;
    readonly profile?: WebhookProfile | undefined;
  },
): VerifiedPayload {
  const rule = rulesOf(request.profile ?? DEFAULT_PROFILE).payloadRule(
    claims.webhook,
    request.method,
    { requireHash: request.requireHash ?? true },
  );
  // The body of a HEAD is never read, so it must not become the payload here either.
  const body = rule.kind === 'no-body' ? new Uint8Array() : (request.body ?? new Uint8Array());
  const computed = new BodyDigests(rule).update(body).digests();
  return checkPayload(claims.webhook, rule, body.length, computed);
}
