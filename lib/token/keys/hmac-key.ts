import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto';
import { encodeBase64urlText } from '../json/base64url.js';
import type { CompactToken } from '../compact-token.js';
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
 * Room for the two texts that are compared, one MAC at a time: two fresh Buffers would cost a fifth of the HMAC itself
 * (benchmark `token`, 300 B).
 */
interface MacTexts {
  readonly expected: Buffer;
  readonly found: Buffer;
}

const MAC_TEXTS: Readonly<Record<HmacAlgorithm, MacTexts>> = {
  HS256: macTexts(32),
  HS384: macTexts(48),
  HS512: macTexts(64),
};

/**
 * A shared secret, through node:crypto and synchronously: a fraction of what a promise-based HMAC costs
 * (benchmark `token`), and no wait behind a busy thread pool. The KeyObject is made once; an HMAC over a Buffer
 * would import it anew at each call.
 */
export class HmacKey implements SigningKey, VerificationKey {
  private readonly hash: string;
  private readonly macs: MacTexts;
  /** The header that was signed last, as text and as segment: a signer has one for each type of token. */
  private header = { text: '', segment: '' };

  constructor(
    readonly alg: HmacAlgorithm,
    private readonly secret: KeyObject,
    readonly kid: string | undefined,
  ) {
    this.hash = HMAC_ALGORITHMS[alg].hash;
    this.macs = MAC_TEXTS[alg];
  }

  sign(header: string, claims: string): string {
    if (header !== this.header.text) {
      this.header = { text: header, segment: encodeBase64urlText(header) };
    }
    const input = `${this.header.segment}.${encodeBase64urlText(claims)}`;
    return `${input}.${this.mac(input)}`;
  }

  verify(token: CompactToken): boolean {
    const { signature } = token;
    const { expected, found } = this.macs;
    // Texts are compared, not bytes: a signature that decodes to the MAC but is not its canonical
    // text differs here. UTF-8 keeps foreign characters from folding onto ASCII ones.
    if (signature.length !== found.length || found.write(signature) !== found.length) return false;
    expected.write(this.mac(token.signingInput), 'latin1');
    return timingSafeEqual(expected, found);
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

function macTexts(bytes: number): MacTexts {
  const { length } = Buffer.alloc(bytes).toString('base64url');
  return { expected: Buffer.alloc(length), found: Buffer.alloc(length) };
}
