import { sha3_256, sha3_384, sha3_512 } from '@noble/hashes/sha3.js';
import { createHash, getHashes, timingSafeEqual } from 'node:crypto';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { HASH_ALGORITHMS, type HashAlgorithm } from './webhook-token.constants.js';

const NATIVE: ReadonlySet<string> = new Set(getHashes());

/** BoringSSL (Electron, some edge runtimes) has no SHA-3. */
const PURE: Partial<Record<HashAlgorithm, typeof sha3_256>> = {
  'sha3-256': sha3_256,
  'sha3-384': sha3_384,
  'sha3-512': sha3_512,
};

const HEX_LENGTH: Readonly<Record<HashAlgorithm, number>> = {
  sha256: 64,
  sha384: 96,
  sha512: 128,
  'sha3-256': 64,
  'sha3-384': 96,
  'sha3-512': 128,
};

const HEX = /^[0-9a-fA-F]+$/;

/** A digest over bytes that arrive in chunks. */
export interface WebhookDigest {
  /** Adds the next chunk. */
  update(chunk: Uint8Array): this;
  /** Finishes the computation and returns the value of the `hash` field, `<algorithm>:<hex>`. */
  digest(): string;
}

/** A parsed `hash` field. */
export interface PayloadHash {
  readonly algorithm: HashAlgorithm;
  /** Lower case. */
  readonly hex: string;
}

/** Reports whether a value names one of the six digest algorithms. */
export function isHashAlgorithm(name: unknown): name is HashAlgorithm {
  return HASH_ALGORITHMS.includes(name as HashAlgorithm);
}

/**
 * Starts a digest over bytes that arrive in chunks.
 *
 * @throws {@link WebhookPayloadError} `hash_unsupported` for an unknown algorithm
 */
export function createDigest(algorithm: HashAlgorithm): WebhookDigest {
  if (!isHashAlgorithm(algorithm)) throw unsupported();
  return startDigest(algorithm);
}

/**
 * Starts a digest in the runtime's crypto, or in JavaScript if the runtime has no SHA-3.
 *
 * @param native - algorithms of the runtime's crypto; tests of the fallback pass their own
 */
export function startDigest(
  algorithm: HashAlgorithm,
  native: ReadonlySet<string> = NATIVE,
): WebhookDigest {
  const pure = native.has(algorithm) ? undefined : PURE[algorithm];
  const hash = pure?.create() ?? createHash(algorithm);
  return {
    update(chunk) {
      hash.update(chunk);
      return this;
    },
    digest: () => `${algorithm}:${Buffer.from(hash.digest()).toString('hex')}`,
  };
}

/**
 * Computes the digest of bytes.
 *
 * @returns `<algorithm>:<hex>`, lower case
 * @throws {@link WebhookPayloadError} `hash_unsupported` for an unknown algorithm
 */
export function digest(algorithm: HashAlgorithm, bytes: Uint8Array): string {
  return createDigest(algorithm).update(bytes).digest();
}

/** The names that a wire format has for the six algorithms. */
export type HashNames = Readonly<Record<HashAlgorithm, string>>;

/** The names of the specification, which this package uses everywhere else. */
const PLAIN_HASH_NAMES = Object.fromEntries(
  HASH_ALGORITHMS.map((algorithm) => [algorithm, algorithm]),
) as HashNames;

/**
 * Parses a `hash` field: an algorithm name, a colon, hex digits of the exact length in either case.
 *
 * @param names - algorithm names of the wire format, compared exactly
 * @throws {@link WebhookPayloadError} `hash_unsupported`
 */
export function parsePayloadHash(text: string, names: HashNames = PLAIN_HASH_NAMES): PayloadHash {
  const colon = text.indexOf(':');
  return payloadHash(algorithmNamed(text.slice(0, colon), names), text.slice(colon + 1), names);
}

export function algorithmNamed(name: string, names: HashNames): HashAlgorithm | undefined {
  return HASH_ALGORITHMS.find((algorithm) => names[algorithm] === name);
}

/**
 * Checks the parts of a digest.
 *
 * @param algorithm - `undefined` for an unknown name
 * @throws {@link WebhookPayloadError} `hash_unsupported`
 */
export function payloadHash(
  algorithm: HashAlgorithm | undefined,
  hex: string,
  names: HashNames = PLAIN_HASH_NAMES,
): PayloadHash {
  if (algorithm === undefined || hex.length !== HEX_LENGTH[algorithm] || !HEX.test(hex)) {
    throw unsupported(names);
  }
  return { algorithm, hex: hex.toLowerCase() };
}

/** Compares a computed digest with the expected one in constant time. */
export function samePayloadHash(expected: PayloadHash, computed: string): boolean {
  const wanted = Buffer.from(`${expected.algorithm}:${expected.hex}`);
  const actual = Buffer.from(computed);
  return wanted.length === actual.length && timingSafeEqual(wanted, actual);
}

function unsupported(names: HashNames = PLAIN_HASH_NAMES): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_unsupported',
    `the hash must be <algorithm>:<hex digest>, with an algorithm of ${Object.values(names).join(', ')}`,
  );
}

/** A body without a digest in the token. */
export function hashRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'the request has a body and the token has no webhook.hash that authenticates it',
  );
}

/** A body with another digest or another size. */
export function hashMismatch(): WebhookPayloadError {
  return new WebhookPayloadError('hash_mismatch', 'the body does not match the hash in the token');
}

/** A digest in the token of a HEAD. */
export function hashOnHead(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_unsupported',
    'a HEAD request has no body for a hash to match: send POST, or inline data',
  );
}
