import type { KeyObject } from 'node:crypto';
import { WebhookSigningError } from '../../errors/webhook-signing.error.js';
import { isKeyId, KEY_ID_RULE } from '../identifier.js';
import { parseKey } from './key-material.js';
import { formSignature } from './signature-form.js';
import { isThenable, type MaybePromise } from '../maybe-promise.js';
import type { SigningKey } from './token-key.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from '../webhook-token.constants.js';
import { DEFAULT_INLINE_LIMIT, type WebhookSigner } from '../webhook-signer.js';

const BITS_PER_BYTE = 8;

/** The signer as a key, or what is wrong with it. */
type ParsedSigner =
  | { readonly key: SignerKey; readonly fault?: undefined }
  | { readonly key?: undefined; readonly fault: string };

/** A {@link WebhookSigner} as the key of a token signer. Algorithm and name are read once: they are in the header. */
export class SignerKey implements SigningKey {
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
