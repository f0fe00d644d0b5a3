import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  type JsonWebKeyInput,
  sign,
} from 'node:crypto';
import { secretBytes } from '../../token/keys/parse-secret.js';
import { isHmac } from '../../token/keys/token-keys.js';
import type { SignatureAlgorithm } from '../../token/webhook-token.constants.js';
import type { IssuerKey } from '../arguments.js';

/** Signs any input, including input that the package's own signer refuses. */
export interface ProbeSigner {
  readonly alg: string;
  /** The public key, for the attack that uses it as a secret; absent for a secret. */
  readonly publicPem?: string;
  /** The same secret under another algorithm; absent for a key pair. */
  withAlgorithm?(alg: string): ProbeSigner;
  /** @returns the signature in base64url */
  sign(input: string): string;
}

const DIGESTS: Readonly<Record<string, string>> = {
  HS256: 'sha256',
  HS384: 'sha384',
  HS512: 'sha512',
  RS256: 'sha256',
  PS256: 'sha256',
  ES256: 'sha256',
  ES384: 'sha384',
};

/** Signs with any secret, even one that is too short. */
export function hmacSigner(secret: string | Buffer, alg = 'HS256'): ProbeSigner {
  const hash = DIGESTS[alg] ?? 'sha256';
  const sign = (input: string): string =>
    createHmac(hash, secret).update(input).digest('base64url');
  return { alg, sign, withAlgorithm: (other) => hmacSigner(secret, other) };
}

/** Signs with a key that `readIssuerKey` has checked. */
export function signerOf({ key, alg = 'HS256' }: IssuerKey['key']): ProbeSigner {
  return isHmac(alg)
    ? hmacSigner(secretBytes(key, alg, 'sign'), alg)
    : keyPairSigner(
        typeof key === 'string' ? key : ({ key, format: 'jwk' } as JsonWebKeyInput),
        alg,
      );
}

function keyPairSigner(
  material: Parameters<typeof createPrivateKey>[0],
  alg: SignatureAlgorithm,
): ProbeSigner {
  const key = createPrivateKey(material);
  const digest = alg === 'EdDSA' ? null : (DIGESTS[alg] ?? 'sha256');
  const options = alg.startsWith('PS')
    ? { key, padding: 6, saltLength: 32 }
    : { key, dsaEncoding: 'ieee-p1363' as const };
  return {
    alg,
    publicPem: createPublicKey(key).export({ type: 'spki', format: 'pem' }) as string,
    sign: (input) => sign(digest, Buffer.from(input), options).toString('base64url'),
  };
}
