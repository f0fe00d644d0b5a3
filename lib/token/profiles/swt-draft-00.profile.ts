import { WebhookPayloadError } from '../../errors/webhook.error.js';
import { decodeUtf8 } from '../decoding.js';
import { isObject, parseJson, scanJson, structureProblem } from '../json.js';
import {
  algorithmNamed,
  hashOnHead,
  type HashNames,
  parsePayloadHash,
  payloadHash,
  type PayloadHash,
} from '../payload-hash.js';
import { invalidClaim } from '../validate-claims.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import { type HashAlgorithm, MAX_DATA_DEPTH } from '../webhook-token.constants.js';
import type { Members, ProfileRules } from './profile.js';

/** Algorithm names of the reference implementation, which reads them case-insensitively. */
export const DRAFT_00_HASH_NAMES: HashNames = {
  sha256: 'SHA-256',
  sha384: 'SHA-384',
  sha512: 'SHA-512',
  'sha3-256': 'SHA3-256',
  'sha3-384': 'SHA3-384',
  'sha3-512': 'SHA3-512',
};

/** The algorithm of a reference without `hashAlg`. */
const REFERENCE_HASH: HashAlgorithm = 'sha3-256';

/** The contents of `webhook.data` if the request has a body. */
interface BodyReference {
  readonly hash: PayloadHash;
  readonly size: number;
}

const MEMBERS = new Set(['hash', 'hashAlg', 'size']);

/**
 * Reports whether data has the members of a reference to a body and no others, so that an event's own data with a `hash`
 * is not mistaken for one.
 */
export function looksLikeBodyReference(data: unknown): boolean {
  return (
    isObject(data) &&
    typeof data['hash'] === 'string' &&
    typeof data['size'] === 'number' &&
    Object.keys(data).every((name) => MEMBERS.has(name))
  );
}

/** @throws {@link WebhookPayloadError} `hash_required` for other data, `hash_unsupported` for a malformed reference */
function readBodyReference(data: unknown): BodyReference {
  if (!isObject(data) || data['hash'] === undefined) throw bodyReferenceRequired();
  const { hash, hashAlg, size } = data;
  if (typeof hash !== 'string' || !Number.isSafeInteger(size) || (size as number) < 0) {
    throw new WebhookPayloadError(
      'hash_unsupported',
      'webhook.data must refer to the body as { hash: <hex digest>, hashAlg?, size: <bytes> }',
    );
  }
  return {
    hash: payloadHash(algorithmOf(hashAlg), hash, DRAFT_00_HASH_NAMES),
    size: size as number,
  };
}

/** A POST of swt-draft-00 without a reference to its body; that profile requires one even if the body is empty. */
function bodyReferenceRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'a POST of swt-draft-00 needs webhook.data = { hash, hashAlg?, size } for its body, even if it is empty',
  );
}

/** Writes the reference to a body, always with its algorithm. */
function writeBodyReference({ hash, size }: BodyReference): string {
  return JSON.stringify({ hash: hash.hex, hashAlg: DRAFT_00_HASH_NAMES[hash.algorithm], size });
}

function algorithmOf(name: unknown): HashAlgorithm | undefined {
  if (name === undefined) return REFERENCE_HASH;
  if (typeof name !== 'string' || !/^[\w-]+$/.test(name)) return undefined;
  // The reference implementation sends the name as its caller wrote it and ignores the case of a received one.
  return algorithmNamed(name.toUpperCase(), DRAFT_00_HASH_NAMES);
}

/**
 * Claims whose data arrived as base64. The reference implementation never encodes the reference to a body in this way, so
 * `{ hash, size }` in base64 is data.
 */
const fromBase64 = new WeakSet<object>();

/**
 * Decodes data that is the base64 of JSON, with the same checks as data that is JSON.
 *
 * @param text - canonical base64 with padding (RFC 4648, section 4)
 * @throws {@link WebhookTokenError} `invalid_claim`, without a part of the data in its message
 */
function decodeBase64Json(text: string, maxMembers: number): unknown {
  const bytes = Buffer.from(text, 'base64');
  // Node skips unknown characters; only canonical base64 survives the round trip.
  if (bytes.toString('base64') !== text) {
    throw invalidClaim('webhook.data', 'webhook.data is a string, but not canonical base64');
  }
  const json = decodeUtf8(bytes);
  const data =
    json === undefined || scanJson(json, { members: maxMembers }) ? undefined : parseJson(json);
  if (data === undefined) {
    throw invalidClaim(
      'webhook.data',
      `webhook.data must be the base64 of JSON in UTF-8 with at most ${maxMembers} members`,
    );
  }
  const problem = structureProblem(data, MAX_DATA_DEPTH);
  if (problem !== undefined) throw invalidClaim('webhook.data', `webhook.data ${problem}`);
  return data;
}

/** draft-knauer-secure-webhook-token-00, as its Go reference (v0.2.2) sends and reads it. */
export const SWT_DRAFT_00: ProfileRules = {
  name: 'swt-draft-00',
  typ: 'JWT',
  algorithms: new Set(['HS256', 'HS384', 'HS512']),
  methods: new Set(['HEAD', 'POST']),
  requiresNotBefore: true,
  toleratesSkew: false,
  defaultHash: 'sha3-256',
  hashesEmptyBody: true,

  readClaim(webhook, maxMembers) {
    if (webhook['hash'] !== undefined && typeof webhook['hash'] !== 'string') {
      throw invalidClaim('webhook.hash', 'webhook.hash must be a string');
    }
    const { data, ...others } = webhook;
    // The reference implementation encodes bytes as base64 and missing bytes as `null`.
    if (data === undefined || data === null) return others as unknown as WebhookClaim;
    if (isObject(data)) return { ...others, data } as unknown as WebhookClaim;
    if (typeof data !== 'string') {
      throw invalidClaim('webhook.data', 'webhook.data must be a JSON object, or base64 of JSON');
    }
    const claim = { ...others, data: decodeBase64Json(data, maxMembers) };
    fromBase64.add(claim);
    return claim as unknown as WebhookClaim;
  },

  payloadRule(claim, method) {
    const { data, hash } = claim;
    const isReference = looksLikeBodyReference(data) && !fromBase64.has(claim);
    if (method === 'HEAD') {
      // A token of a POST, replayed as HEAD, would pass its reference off as data and use up its id.
      if (hash !== undefined || isReference) throw hashOnHead();
      return { kind: 'no-body' };
    }
    if (fromBase64.has(claim)) throw bodyReferenceRequired();
    const reference = readBodyReference(data);
    // If the token has the digests of both formats, both must match, so that every receiver reads the same body.
    const specHash = hash === undefined ? [] : [parsePayloadHash(hash)];
    return {
      kind: 'digest',
      hashes: [reference.hash, ...specHash],
      size: reference.size,
      emptyBody: 'none',
    };
  },

  attempt: () => undefined,

  writeClaim(event, { data, hash, size }) {
    if (hash === undefined)
      return `{"event":"${event}"${data === undefined ? '' : `,"data":${data}`}}`;
    if (data !== undefined || size === undefined) {
      throw invalidClaim(
        'webhook.data',
        'with a hash, swt-draft-00 refers to the body in webhook.data: pass its size, and no data',
      );
    }
    const reference = writeBodyReference({ hash, size });
    // Receivers of the specification read `hash`, those of the draft `data`.
    return `{"event":"${event}","data":${reference},"hash":"${hash.algorithm}:${hash.hex}"}`;
  },
};

/** Reports whether a claim has a form that no other profile has. */
export function isDraft00Claim({ data }: Members): boolean {
  return data === null || typeof data === 'string' || looksLikeBodyReference(data);
}
