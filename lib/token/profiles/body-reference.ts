import { WebhookPayloadError } from '../../errors/webhook-payload.error.js';
import { isObject } from '../json/json-object.js';
import { algorithmNamed, payloadHash, type HashNames, type PayloadHash } from '../payload-hash.js';
import { bodyReferenceRequired } from '../payload-refusals.js';
import type { HashAlgorithm } from '../webhook-token.constants.js';

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
export const REFERENCE_HASH: HashAlgorithm = 'sha3-256';

/** What stands in `webhook.data` for a body: its digest and its bytes. */
export interface BodyReference {
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
export function readBodyReference(data: unknown): BodyReference {
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
export function writeBodyReference({ hash, size }: BodyReference): string {
  return JSON.stringify({ hash: hash.hex, hashAlg: NAMES[hash.algorithm], size });
}

function algorithmOf(name: unknown): HashAlgorithm | undefined {
  if (name === undefined) return REFERENCE_HASH;
  if (typeof name !== 'string' || !/^[\w-]+$/.test(name)) return undefined;
  // A sender's own spelling goes on the wire as it is, and the reference implementation ignores its case.
  return algorithmNamed(name.toUpperCase(), NAMES);
}
