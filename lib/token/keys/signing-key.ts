import type { KeyObject } from 'node:crypto';
import { WebhookSigningError } from '../../errors/webhook.error.js';
import { isKeyId, KEY_ID_RULE } from '../identifier.js';
import { encodeBase64urlText } from '../decoding.js';
import { DEFAULT_INLINE_LIMIT, isWebhookSigner, type WebhookSigner } from '../webhook-signer.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from '../webhook-token.constants.js';
import type { Parsed } from './key-form.js';
import {
  type KeyInput,
  type KeyPolicy,
  parseKey,
  type ParsedKeyWindow,
  parseKeyWindow,
  type WindowedKey,
} from './key-material.js';
import type { SigningKey } from './token-keys.js';

/** A key in this process, or a signer for a key elsewhere. */
export type SigningKeyInput = KeyInput | WebhookSigner;

/** Parses a key or a signer. A problem never quotes the key. */
export function parseSigningKey(
  input: SigningKeyInput,
  policy?: KeyPolicy,
): Parsed<WindowedKey<SigningKey>> {
  const { key, problem } = isWebhookSigner(input)
    ? SignerKey.of(input)
    : parseKey(input, 'sign', policy);
  if (key === undefined) return { problem };
  const { window, problem: windowProblem } = signingWindow(input);
  return windowProblem === undefined ? { key, window } : { problem: windowProblem };
}

/** Parses only the window. Bare key material has none, even if a JWK has members of these names. */
export function signingWindow(input: SigningKeyInput): ParsedKeyWindow {
  const hasWindow =
    isWebhookSigner(input) || (typeof input === 'object' && input !== null && 'key' in input);
  return hasWindow ? parseKeyWindow(input as WebhookSigner) : { window: undefined };
}

const BITS_PER_BYTE = 8;

/** A {@link WebhookSigner} as a signing key. Its algorithm and kid are read once, since they are in the header. */
class SignerKey implements SigningKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  readonly inlineLimit: number;
  private readonly modulusBytes: number | undefined;
  /** Private, so that inspecting this object does not print the application's client and its credentials. */
  readonly #signer: WebhookSigner;

  /** Checks everything about a signer that needs no signature. */
  static of(signer: WebhookSigner): Parsed<{ readonly key: SignerKey }> {
    const { alg, kid, publicKey, inlineLimit } = signer;
    if (!SIGNATURE_ALGORITHMS.includes(alg)) {
      return { problem: `the signer's alg must be one of ${SIGNATURE_ALGORITHMS.join(', ')}` };
    }
    if (kid !== undefined && !isKeyId(kid)) return { problem: `the signer's ${KEY_ID_RULE}` };
    if (inlineLimit !== undefined && !(Number.isInteger(inlineLimit) && inlineLimit >= 0)) {
      return { problem: "the signer's inlineLimit must be a whole number of bytes, 0 or more" };
    }
    if (publicKey === undefined) return { key: new SignerKey(signer, undefined) };
    if (alg.startsWith('HS')) {
      return { problem: `a signer of ${alg} has no public key: leave publicKey out` };
    }
    const { key, problem } = parseKey({ alg, kid, key: publicKey }, 'verify');
    return key === undefined
      ? { problem: `the signer's publicKey: ${problem}` }
      : { key: new SignerKey(signer, (key as SigningKey).publicKey?.()) };
  }

  private constructor(
    signer: WebhookSigner,
    private readonly publicHalf: KeyObject | undefined,
  ) {
    this.#signer = signer;
    this.alg = signer.alg;
    this.kid = signer.kid;
    this.inlineLimit = signer.inlineLimit ?? DEFAULT_INLINE_LIMIT;
    const bits = publicHalf?.asymmetricKeyDetails?.modulusLength;
    this.modulusBytes = bits === undefined ? undefined : Math.ceil(bits / BITS_PER_BYTE);
  }

  publicKey(): KeyObject | undefined {
    return this.publicHalf;
  }

  async sign(header: string, claims: string): Promise<string> {
    const input = `${encodeBase64urlText(header)}.${encodeBase64urlText(claims)}`;
    let signature: unknown;
    try {
      signature = await this.#signer.sign(Buffer.from(input));
    } catch (error) {
      throw this.failure(error);
    }
    return `${input}.${this.encodeSignature(signature)}`;
  }

  private encodeSignature(given: unknown): string {
    const { signature, problem } = formSignature(this.alg, given, this.modulusBytes);
    if (signature === undefined) throw new WebhookSigningError('signing_failed', `${problem}.`);
    return Buffer.from(signature.buffer, signature.byteOffset, signature.length).toString(
      'base64url',
    );
  }

  /** The message repeats nothing of the signer's error, which may quote the request and so the payload. */
  private failure(cause: unknown): WebhookSigningError {
    return new WebhookSigningError(
      'signing_failed',
      `the signer of ${this.alg} failed: see the cause of this error.`,
      { cause },
    );
  }
}

/** Bytes of r, and of s. */
const ECDSA_BYTES: Readonly<Record<string, number>> = { ES256: 32, ES384: 48 };

/** Bytes of MACs and of Ed25519 signatures. */
const FIXED_BYTES: Readonly<Record<string, number>> = {
  HS256: 32,
  HS384: 48,
  HS512: 64,
  EdDSA: 64,
};

/** RSA moduli of 2048 to 8192 bits. */
const LEAST_RSA_BYTES = 256;
const MOST_RSA_BYTES = 1_024;

/** A signature in the form of RFC 7518. */
type FormedSignature = Parsed<{ readonly signature: Uint8Array }>;

/**
 * Checks the form of a signer's signature, so that a wrong setting fails here and not as `bad_signature` at every
 * receiver. It does not verify the signature.
 *
 * @param modulusBytes - bytes of the RSA modulus, if known
 */
function formSignature(
  alg: string,
  given: unknown,
  modulusBytes: number | undefined,
): FormedSignature {
  if (!(given instanceof Uint8Array)) {
    return { problem: `sign() of the signer must return a Uint8Array or a Buffer` };
  }
  const half = ECDSA_BYTES[alg];
  if (half !== undefined) return formEcdsa(alg, given, half);
  const fixed = FIXED_BYTES[alg] ?? modulusBytes;
  if (fixed !== undefined && given.length !== fixed) return wrongLength(alg, given, `${fixed}`);
  if (given.length < (fixed ?? LEAST_RSA_BYTES) || given.length > MOST_RSA_BYTES) {
    return wrongLength(alg, given, `${LEAST_RSA_BYTES} to ${MOST_RSA_BYTES}`);
  }
  return { signature: given };
}

function formEcdsa(alg: string, given: Uint8Array, half: number): FormedSignature {
  // Recognised by its length: DER of the same length occurs once in 2^45 signatures, and a retry then succeeds.
  if (given.length === 2 * half) return { signature: given };
  const signature = ecdsaFromDer(given, half);
  return signature === undefined
    ? {
        problem: `an ${alg} signature has ${2 * half} bytes (r and s) or is their DER, and the ${given.length} bytes from the signer are neither: check that its key is on the curve of ${alg}`,
      }
    : { signature };
}

function wrongLength(alg: string, given: Uint8Array, wanted: string): FormedSignature {
  return {
    problem: `an ${alg} signature has ${wanted} bytes, and the signer returned ${given.length}: check the type of its key and its algorithm, and that it returns bytes and not an encoded string`,
  };
}

const SEQUENCE = 0x30;
const INTEGER = 0x02;
const SIGN_BIT = 0x80;

/**
 * Converts an ECDSA signature from DER (RFC 3279, section 2.2.3), which KMS, HSM and TLS libraries return, to r‖s
 * (RFC 7518, section 3.4).
 *
 * Accepts only strict DER: short lengths, which suffice for two numbers of these sizes, positive integers without
 * redundant leading zeros, and no trailing bytes.
 *
 * @param size - bytes of each number: 32 for P-256, 48 for P-384
 * @returns `undefined` for anything else
 */
export function ecdsaFromDer(der: Uint8Array, size: number): Buffer | undefined {
  if (der[0] !== SEQUENCE || der[1] !== der.length - 2) return undefined;
  const r = integerAt(der, 2, size);
  if (r === undefined) return undefined;
  const s = integerAt(der, r.end, size);
  if (s?.end !== der.length) return undefined;
  const joined = Buffer.alloc(2 * size);
  joined.set(r.bytes, size - r.bytes.length);
  joined.set(s.bytes, 2 * size - s.bytes.length);
  return joined;
}

/** A positive integer of at most `size` bytes, without its sign byte. */
function integerAt(
  der: Uint8Array,
  start: number,
  size: number,
): { readonly bytes: Uint8Array; readonly end: number } | undefined {
  const length = der[start + 1];
  if (der[start] !== INTEGER || length === undefined || length === 0) return undefined;
  const end = start + 2 + length;
  const bytes = der.subarray(start + 2, end);
  const [first = 0, second = 0] = bytes;
  if (end > der.length || first >= SIGN_BIT) return undefined;
  if (first !== 0) return length <= size ? { bytes, end } : undefined;
  // A leading zero is only allowed to keep the number positive; the number 0 is not allowed.
  return second >= SIGN_BIT && length <= size + 1 ? { bytes: bytes.subarray(1), end } : undefined;
}
