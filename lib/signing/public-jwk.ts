import { createHash, type KeyObject } from 'node:crypto';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';

/** The public half of a key pair, RFC 7517: these members and no others. */
export interface PublicJwk {
  readonly kty: string;
  readonly crv?: string;
  readonly x?: string;
  readonly y?: string;
  readonly n?: string;
  readonly e?: string;
  readonly kid?: string;
  readonly alg: SignatureAlgorithm;
  readonly use: 'sig';
}

/** What makes up a public key of each type, RFC 7638 section 3.2, in the order in which its thumbprint wants it. */
const PUBLIC_MEMBERS = {
  EC: ['crv', 'kty', 'x', 'y'],
  OKP: ['crv', 'kty', 'x'],
  RSA: ['e', 'kty', 'n'],
} as const;

type PublicMember = (typeof PUBLIC_MEMBERS)[keyof typeof PUBLIC_MEMBERS][number];

/** Writes the public half as a JWK: what is public is picked, so that nothing else can come along. */
export function publicJwk(
  key: KeyObject,
  { alg, kid }: { readonly alg: SignatureAlgorithm; readonly kid: string | undefined },
): PublicJwk {
  const { kty, ...members } = pickPublic(key);
  return { kty, ...members, ...(kid !== undefined && { kid }), alg, use: 'sig' };
}

/** The SHA-256 thumbprint of a public key, RFC 7638: the same for everybody who has the key, and so a good `kid`. */
export function jwkThumbprint(key: KeyObject): string {
  return createHash('sha256')
    .update(JSON.stringify(pickPublic(key)))
    .digest('base64url');
}

function pickPublic(key: KeyObject): { kty: string } & Partial<Record<PublicMember, string>> {
  if (key.type !== 'public') throw new TypeError('only public keys are published');
  const jwk = key.export({ format: 'jwk' });
  const names = PUBLIC_MEMBERS[jwk.kty as keyof typeof PUBLIC_MEMBERS];
  return Object.fromEntries(names.map((name) => [name, jwk[name]])) as ReturnType<
    typeof pickPublic
  >;
}
