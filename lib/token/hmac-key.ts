import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto';
import type { CompactToken } from './compact-token.js';
import type { SigningKey, VerificationKey } from './token-key.js';

/** HMAC algorithms, RFC 7518 section 3.2, with the digest and the least bytes of secret each wants. */
export const HMAC_ALGORITHMS = {
  HS256: { hash: 'sha256', secretBytes: 32 },
  HS384: { hash: 'sha384', secretBytes: 48 },
  HS512: { hash: 'sha512', secretBytes: 64 },
} as const;

/** Name of an HMAC algorithm. */
export type HmacAlgorithm = keyof typeof HMAC_ALGORITHMS;

/**
 * A shared secret, through node:crypto and synchronously: a fraction of what a promise-based HMAC costs
 * (benchmark `token`), and no wait behind a busy thread pool. The KeyObject is made once; an HMAC over a Buffer
 * would import it anew at each call.
 */
export class HmacKey implements SigningKey, VerificationKey {
  private readonly hash: string;

  constructor(
    readonly alg: HmacAlgorithm,
    private readonly secret: KeyObject,
    readonly kid: string | undefined,
  ) {
    this.hash = HMAC_ALGORITHMS[alg].hash;
  }

  sign(header: string, claims: string): string {
    const input = `${encode(header)}.${encode(claims)}`;
    return `${input}.${this.mac(input)}`;
  }

  verify(token: CompactToken): boolean {
    // Texts are compared, not bytes: a signature that decodes to the MAC but is not its canonical
    // text differs here. UTF-8 keeps foreign characters from folding onto ASCII ones.
    const expected = Buffer.from(this.mac(token.signingInput));
    const found = Buffer.from(token.signature);
    return expected.length === found.length && timingSafeEqual(expected, found);
  }

  /**
   * Tells whether a token was signed with another form of this secret, for whoever explains a refusal.
   *
   * @param change - makes the other form; the bytes it is given and gives are overwritten afterwards
   */
  verifiesUnder(token: CompactToken, change: (secret: Buffer) => Buffer | undefined): boolean {
    const secret = this.secret.export();
    const changed = change(secret);
    try {
      if (changed === undefined || changed.length === 0) return false;
      return new HmacKey(this.alg, createSecretKey(changed), this.kid).verify(token);
    } finally {
      changed?.fill(0);
      secret.fill(0);
    }
  }

  /** Whether both hold the same secret, whatever their algorithms and names. */
  holdsSame(other: VerificationKey): boolean {
    return other instanceof HmacKey && this.secret.equals(other.secret);
  }

  private mac(input: string): string {
    return createHmac(this.hash, this.secret).update(input).digest('base64url');
  }
}

function encode(json: string): string {
  return Buffer.from(json).toString('base64url');
}
