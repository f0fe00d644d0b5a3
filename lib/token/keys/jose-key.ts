import { Buffer } from 'node:buffer';
import { createPublicKey, type KeyObject } from 'node:crypto';
import { FlattenedSign, flattenedVerify, type JWSHeaderParameters } from 'jose';
import { decodeBase64url } from '../json/base64url.js';
import type { CompactToken } from '../compact-token.js';
import type { SigningKey, VerificationKey } from './token-key.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/** A key pair's half, through jose: audited, and off the event loop. */
export class JoseKey implements SigningKey, VerificationKey {
  constructor(
    readonly alg: SignatureAlgorithm,
    private readonly key: KeyObject,
    readonly kid: string | undefined,
  ) {}

  publicKey(): KeyObject {
    return this.key.type === 'private' ? createPublicKey(this.key) : this.key;
  }

  async sign(header: string, claims: string): Promise<string> {
    const jws = await new FlattenedSign(Buffer.from(claims))
      .setProtectedHeader(JSON.parse(header) as JWSHeaderParameters)
      .sign(this.key);
    return `${jws.protected}.${jws.payload}.${jws.signature}`;
  }

  async verify(token: CompactToken): Promise<boolean> {
    // jose takes any text that decodes to the signature; only its canonical form is a token.
    if (decodeBase64url(token.signature) === undefined) return false;
    try {
      await flattenedVerify(
        { protected: token.header, payload: token.payload, signature: token.signature },
        this.key,
        { algorithms: [this.alg] },
      );
      return true;
    } catch {
      return false;
    }
  }

  /** Whether both hold the same half of a key pair, whatever their algorithms and names. */
  holdsSame(other: VerificationKey): boolean {
    return other instanceof JoseKey && this.key.equals(other.key);
  }
}
