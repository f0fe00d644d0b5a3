import { WebhookPayloadError } from '../../errors/webhook.error.js';
import { invalidClaim } from '../claim-refusals.js';
import {
  decodeUtf8,
  exceedsMembers,
  isObject,
  parseJson,
  structureFault,
  type StructureFault,
} from '../json/strict-json.js';
import {
  algorithmNamed,
  type HashNames,
  parsePayloadHash,
  payloadHash,
  type PayloadHash,
} from '../payload-hash.js';
import { bodyReferenceRequired, hashOnHead } from '../payload-refusals.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import { type HashAlgorithm, MAX_DATA_DEPTH } from '../webhook-token.constants.js';
import type { Members, ProfileRules } from './profile-rules.interface.js';

/** How the reference implementation of -00 writes the algorithms; it reads them in any case. */
const NAMES: HashNames = {
  sha256: 'SHA-256',
  sha384: 'SHA-384',
  sha512: 'SHA-512',
  'sha3-256': 'SHA3-256',
  'sha3-384': 'SHA3-384',
  'sha3-512': 'SHA3-512',
};

/** The algorithm where a reference names none. */
const REFERENCE_HASH: HashAlgorithm = 'sha3-256';

/** What stands in `webhook.data` for a body: its digest and its bytes. */
interface BodyReference {
  readonly hash: PayloadHash;
  readonly size: number;
}

const MEMBERS = new Set(['hash', 'hashAlg', 'size']);

/**
 * Tells whether data looks like a reference to a body and like nothing else, so that an event's own data
 * that happens to have a `hash` is not taken for one.
 */
export function looksLikeBodyReference(data: unknown): boolean {
  return (
    isObject(data) &&
    typeof data['hash'] === 'string' &&
    typeof data['size'] === 'number' &&
    Object.keys(data).every((name) => MEMBERS.has(name))
  );
}

/**
 * Reads the reference to a body.
 *
 * @throws {@link WebhookPayloadError} `hash_required` where data is none, `hash_unsupported` where it cannot
 *   be checked
 */
function readBodyReference(data: unknown): BodyReference {
  if (!isObject(data) || data['hash'] === undefined) throw bodyReferenceRequired();
  const { hash, hashAlg, size } = data;
  if (typeof hash !== 'string' || !Number.isSafeInteger(size) || (size as number) < 0) {
    throw new WebhookPayloadError(
      'hash_unsupported',
      'webhook.data must refer to the body as { hash: <hex digest>, hashAlg?, size: <bytes> }',
    );
  }
  return { hash: payloadHash(algorithmOf(hashAlg), hash, NAMES), size: size as number };
}

/** Writes the reference to a body. The algorithm is always named: nobody need know the default. */
function writeBodyReference({ hash, size }: BodyReference): string {
  return JSON.stringify({ hash: hash.hex, hashAlg: NAMES[hash.algorithm], size });
}

function algorithmOf(name: unknown): HashAlgorithm | undefined {
  if (name === undefined) return REFERENCE_HASH;
  if (typeof name !== 'string' || !/^[\w-]+$/.test(name)) return undefined;
  // A sender's own spelling goes on the wire as it is, and the reference implementation ignores its case.
  return algorithmNamed(name.toUpperCase(), NAMES);
}

/**
 * Claims whose data arrived as base64. The reference implementation sends and reads inline data in this form and the
 * reference to a body never, so `{ hash, size }` in base64 is data.
 */
const fromBase64 = new WeakSet<object>();

const MESSAGES: Readonly<Record<StructureFault, string>> = {
  'too deep': `webhook.data nests more than ${MAX_DATA_DEPTH} levels`,
  'prototype member': 'webhook.data has a member that would replace a prototype',
};

/**
 * Decodes data that travels as the base64 of its JSON, as strictly as data that travels as JSON.
 *
 * @param text - RFC 4648 section 4: padded, the alphabet with `+` and `/`, canonical
 * @throws {@link WebhookTokenError} `invalid_claim`; never with a piece of the data in it
 */
function decodeBase64Json(text: string, maxMembers: number): unknown {
  const bytes = Buffer.from(text, 'base64');
  // Node's decoder takes what it knows and skips the rest; only one text gives the same text again.
  if (bytes.toString('base64') !== text) {
    throw invalidClaim('webhook.data', 'webhook.data is a text, and not canonical base64');
  }
  const json = decodeUtf8(bytes);
  const data = json === undefined || exceedsMembers(json, maxMembers) ? undefined : parseJson(json);
  if (data === undefined) {
    throw invalidClaim(
      'webhook.data',
      `webhook.data must be the base64 of JSON in UTF-8 with at most ${maxMembers} members`,
    );
  }
  const fault = structureFault(data, MAX_DATA_DEPTH);
  if (fault !== undefined) throw invalidClaim('webhook.data', MESSAGES[fault]);
  return data;
}

/** draft-knauer-secure-webhook-token-00, as its Go reference (v0.2.2) puts it on the wire and reads it. */
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
      throw invalidClaim('webhook.hash', 'webhook.hash must be a text');
    }
    const { data, ...others } = webhook;
    // The reference writes bytes as base64, and no bytes at all as `null`.
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
    // Of a dual stamp both digests must hold, or one request would mean two bodies to two receivers.
    const stamp = hash === undefined ? [] : [parsePayloadHash(hash)];
    return {
      kind: 'digest',
      hashes: [reference.hash, ...stamp],
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
        'with a hash, swt-draft-00 refers to the body in webhook.data: give its size, and no data',
      );
    }
    const reference = writeBodyReference({ hash, size });
    // The dual stamp: receivers of the specification read `hash`, those of the draft `data`.
    return `{"event":"${event}","data":${reference},"hash":"${hash.algorithm}:${hash.hex}"}`;
  },
};

/** Tells whether a claim is in a form that no other profile has, so that it can mean nothing else. */
export function isDraft00Claim({ data }: Members): boolean {
  return data === null || typeof data === 'string' || looksLikeBodyReference(data);
}
