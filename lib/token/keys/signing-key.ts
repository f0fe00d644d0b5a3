import type { KeyObject } from 'node:crypto';
import { WebhookSigningError } from '../../errors/webhook.error.js';
import { isKeyId, KEY_ID_RULE } from '../identifier.js';
import { isThenable, type MaybePromise } from '../maybe-promise.js';
import { DEFAULT_INLINE_LIMIT, isWebhookSigner, type WebhookSigner } from '../webhook-signer.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from '../webhook-token.constants.js';
import { type KeyInput, type KeyPolicy, parseKey } from './key-material.js';
import { type KeyWindow, type ParsedKeyWindow, parseKeyWindow } from './key-window.js';
import type { SigningKey } from './token-key.js';

const SEQUENCE = 0x30;
const INTEGER = 0x02;
const SIGN_BIT = 0x80;

/**
 * Reads an ECDSA signature in DER (RFC 3279, section 2.2.3), as KMS, HSM and TLS libraries give it, and writes it as
 * r‖s (RFC 7518, section 3.4).
 *
 * Only the one encoding that DER allows is read: lengths in short form, which is all that two numbers of these sizes
 * need, integers positive and without a needless zero in front, nothing behind.
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
  // A zero in front is there to keep the number positive, and for nothing else; zero itself is no signature.
  return second >= SIGN_BIT && length <= size + 1 ? { bytes: bytes.subarray(1), end } : undefined;
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

/** The signature as a token carries it, or what is wrong with it. */
type FormedSignature =
  | { readonly signature: Uint8Array; readonly fault?: undefined }
  | { readonly signature?: undefined; readonly fault: string };

/**
 * Holds what a signer gave against the form its algorithm has, so that a wrong setting shows here and not as
 * `bad_signature` at every receiver. Whether the signature holds is for receivers to tell.
 *
 * @param modulusBytes - of an RSA key, where it is known
 */
function formSignature(
  alg: string,
  given: unknown,
  modulusBytes: number | undefined,
): FormedSignature {
  if (!(given instanceof Uint8Array)) {
    return { fault: `a signer's sign() must give bytes, as a Uint8Array or a Buffer` };
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
  // r‖s by its length: that DER comes out just as short happens once in 2^45 signatures, and the next try is good.
  if (given.length === 2 * half) return { signature: given };
  const signature = ecdsaFromDer(given, half);
  return signature === undefined
    ? {
        fault: `an ${alg} signature has ${2 * half} bytes (r and s) or is DER of these, and the signer's ${given.length} bytes are neither: check that its key is on the curve of ${alg}`,
      }
    : { signature };
}

function wrongLength(alg: string, given: Uint8Array, wanted: string): FormedSignature {
  return {
    fault: `a signature of ${alg} has ${wanted} bytes, and the signer gave ${given.length}: check that its key and its algorithm are those of ${alg}, and that it gives bytes and not their text`,
  };
}

const BITS_PER_BYTE = 8;

/** The signer as a key, or what is wrong with it. */
type ParsedSigner =
  | { readonly key: SignerKey; readonly fault?: undefined }
  | { readonly key?: undefined; readonly fault: string };

/** A {@link WebhookSigner} as the key of a token signer. Algorithm and name are read once: they are in the header. */
class SignerKey implements SigningKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  readonly inlineLimit: number;
  private readonly modulusBytes: number | undefined;
  /** The application's own, with a client and its credentials perhaps: printed with nothing of ours. */
  readonly #signer: WebhookSigner;

  /** Checks all of a signer that can be checked without asking it to sign. */
  static of(signer: WebhookSigner): ParsedSigner {
    const { alg, kid, publicKey, inlineLimit } = signer;
    if (!SIGNATURE_ALGORITHMS.includes(alg)) {
      return { fault: `the signer's alg must be one of ${SIGNATURE_ALGORITHMS.join(', ')}` };
    }
    if (kid !== undefined && !isKeyId(kid)) return { fault: `the signer's ${KEY_ID_RULE}` };
    if (inlineLimit !== undefined && !(Number.isInteger(inlineLimit) && inlineLimit >= 0)) {
      return { fault: "the signer's inlineLimit must be a whole number of bytes, 0 or more" };
    }
    if (publicKey === undefined) return { key: new SignerKey(signer, undefined) };
    if (alg.startsWith('HS')) {
      return { fault: `a signer of ${alg} has no public key: leave publicKey out` };
    }
    const { key, fault } = parseKey({ alg, kid, key: publicKey }, 'verify');
    return key === undefined
      ? { fault: `the signer's publicKey: ${fault}` }
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

  sign(header: string, claims: string): MaybePromise<string> {
    const input = `${encode(header)}.${encode(claims)}`;
    let given: MaybePromise<Uint8Array>;
    try {
      given = this.#signer.sign(Buffer.from(input));
    } catch (error) {
      throw this.failure(error);
    }
    const finish = (signature: unknown): string => `${input}.${this.encodeSignature(signature)}`;
    return isThenable(given)
      ? Promise.resolve(given).then(finish, (error: unknown) => {
          throw this.failure(error);
        })
      : finish(given);
  }

  private encodeSignature(given: unknown): string {
    const { signature, fault } = formSignature(this.alg, given, this.modulusBytes);
    if (signature === undefined) throw new WebhookSigningError('signing_failed', `${fault}.`);
    return Buffer.from(signature.buffer, signature.byteOffset, signature.length).toString(
      'base64url',
    );
  }

  /** Nothing of the signer's error is repeated: it may quote the request, and so the payload. */
  private failure(cause: unknown): WebhookSigningError {
    return new WebhookSigningError(
      'signing_failed',
      `the signer of ${this.alg} failed: what it threw is kept as the cause of this error.`,
      { cause },
    );
  }
}

function encode(json: string): string {
  return Buffer.from(json).toString('base64url');
}

/** What tokens are signed with: a key of this process, or a signer that holds one elsewhere. */
export type SigningKeyInput = KeyInput | WebhookSigner;

/** The key with its window (none: it may always be signed with), or what is wrong with it. */
type ParsedSigningKey =
  | { readonly key: SigningKey; readonly window: KeyWindow | undefined; readonly fault?: undefined }
  | { readonly key?: undefined; readonly window?: undefined; readonly fault: string };

/** Parses a key, or takes a signer for one, and says what is wrong with it without quoting it. */
export function parseSigningKey(input: SigningKeyInput, policy?: KeyPolicy): ParsedSigningKey {
  const { key, fault } = isWebhookSigner(input)
    ? SignerKey.of(input)
    : parseKey(input, 'sign', policy);
  if (key === undefined) return { fault };
  const { window, fault: windowFault } = signingWindow(input);
  return windowFault === undefined ? { key, window } : { fault: windowFault };
}

/** The window alone. Key material by itself has none, even if a JWK has members of these names. */
export function signingWindow(input: SigningKeyInput): ParsedKeyWindow {
  const isOwner =
    isWebhookSigner(input) || (typeof input === 'object' && input !== null && 'key' in input);
  return isOwner ? parseKeyWindow(input as WebhookSigner) : { window: undefined };
}
