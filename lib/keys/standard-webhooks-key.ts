import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  sign as signBytes,
  timingSafeEqual,
  verify as verifyBytes,
} from 'node:crypto';
import type { Parsed } from '../token/keys/key-form.js';

/** A secret or a key of Standard Webhooks, and the version of its signatures. It is not printed. */
export interface StandardWebhooksKey {
  readonly version: 'v1' | 'v1a';
  /** Whether one of the signatures holds, in constant time. */
  holdsFor(signed: Buffer, signatures: readonly string[]): boolean;
  /** Base64; absent if the private key is not known. */
  sign?(signed: Buffer): string;
}

type ParsedKey = Parsed<{ readonly key: StandardWebhooksKey; readonly bytes: number }>;

/** The bytes that are signed: both versions sign the same. */
export function signedContent(id: string, time: string, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${id}.${time}.`), body]);
}

/**
 * Parses a secret: `whsec_` and base64, base64 alone, or bytes; a public key `whpk_…`, or a key pair `whsk_…`. A problem never
 * quotes it.
 */
export function parseStandardWebhooksKey(value: unknown): ParsedKey {
  if (value === undefined || value === null) {
    return { problem: 'is undefined; is the environment variable set?' };
  }
  if (value instanceof Uint8Array) return hmacKey(Buffer.from(value));
  if (typeof value !== 'string') return { problem: FORM };
  const [, prefix, encoded] = /^(whsec_|whpk_|whsk_)?(.*)$/s.exec(value)!;
  const bytes = Buffer.from(encoded!, 'base64');
  const isBase64 = bytes.toString('base64').replace(/=+$/, '') === encoded!.replace(/={1,2}$/, '');
  if (!isBase64) return { problem: FORM };
  if (prefix === 'whpk_') {
    return bytes.length === 32
      ? { key: ed25519Key(bytes), bytes: 32 }
      : { problem: 'must have 32 bytes after "whpk_"' };
  }
  if (prefix === 'whsk_') {
    return bytes.length === 64
      ? { key: ed25519Key(bytes.subarray(32), bytes.subarray(0, 32)), bytes: 64 }
      : { problem: 'must have 64 bytes after "whsk_"' };
  }
  return hmacKey(bytes);
}

const FORM = 'must be "whsec_" or "whpk_" followed by base64, or bytes';

function hmacKey(secret: Buffer): ParsedKey {
  if (secret.length === 0) return { problem: 'must not be empty' };
  const sign = (signed: Buffer): string =>
    createHmac('sha256', secret).update(signed).digest('base64');
  return {
    bytes: secret.length,
    key: {
      version: 'v1',
      sign,
      holdsFor(signed, signatures) {
        const expected = sign(signed);
        return signatures.map((one) => isSame(one, expected)).some((same) => same);
      },
    },
  };
}

/** Compares two strings in constant time; their lengths are no secret. */
export function isSame(one: string, other: string): boolean {
  const [bytes, others] = [Buffer.from(one), Buffer.from(other)];
  return bytes.length === others.length && timingSafeEqual(bytes, others);
}

/** The head of an Ed25519 key in DER: RFC 8410, sections 4 and 7. */
const SPKI = Buffer.from('302a300506032b6570032100', 'hex');
const PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex');

function ed25519Key(point: Buffer, seed?: Buffer): StandardWebhooksKey {
  const der = (head: Buffer, tail: Buffer): Buffer => Buffer.concat([head, tail]);
  const publicKey = createPublicKey({ key: der(SPKI, point), format: 'der', type: 'spki' });
  const privateKey: KeyObject | undefined =
    seed && createPrivateKey({ key: der(PKCS8, seed), format: 'der', type: 'pkcs8' });
  return {
    version: 'v1a',
    ...(privateKey && {
      sign: (signed: Buffer) => signBytes(null, signed, privateKey).toString('base64'),
    }),
    holdsFor: (signed, signatures) =>
      signatures.some((one) => {
        const bytes = Buffer.from(one, 'base64');
        // Node ignores characters that are not base64.
        const isCanonical = bytes.length === 64 && bytes.toString('base64') === one;
        return isCanonical && verifyBytes(null, signed, publicKey, bytes);
      }),
  };
}

/** Bytes that the specification allows a secret. */
const MIN_SECRET_BYTES = 24;
const MAX_SECRET_BYTES = 64;

/** Parses a key that a publisher signs with: the specification bounds its length. */
export function parseStandardWebhooksSigningKey(
  value: unknown,
): Parsed<{ readonly key: Required<StandardWebhooksKey> }> {
  const { key, bytes, problem } = parseStandardWebhooksKey(value);
  if (key === undefined) return { problem: problem === FORM ? SIGNING_FORM : problem };
  const { sign } = key;
  if (sign === undefined) {
    return { problem: 'is a public key, which cannot sign: set the key "whsk_" of the pair' };
  }
  if (key.version === 'v1' && (bytes < MIN_SECRET_BYTES || bytes > MAX_SECRET_BYTES)) {
    return {
      problem: `has ${bytes} bytes, and Standard Webhooks allows ${MIN_SECRET_BYTES} to ${MAX_SECRET_BYTES}: make one with echo "whsec_$(openssl rand -base64 32)"`,
    };
  }
  return { key: { ...key, sign } };
}

const SIGNING_FORM =
  'must be "whsec_" or "whsk_" followed by base64, for Standard Webhooks: make one with echo "whsec_$(openssl rand -base64 32)"';
