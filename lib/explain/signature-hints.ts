import type { CompactToken } from '../token/compact-token.js';
import { HmacKey } from '../token/keys/hmac-key.js';
import type { IssuerKeys, TrustedIssuers } from '../token/keys/key-source.js';
import { SECRET_VARIANTS } from './secret-variants.js';
import type { VerificationKey } from '../token/keys/token-key.js';

/** Keys that are tried for one explanation; a receiver may trust ten thousand issuers. */
const MOST_KEYS = 2_000;

/** Under what a signature holds that did not hold as it should. */
export type SignatureFinding =
  | { readonly kind: 'secret'; readonly premise: string }
  /** A key of the issuer that the token's `kid` does not lead to. */
  | { readonly kind: 'key'; readonly kid: string | undefined }
  | { readonly kind: 'issuer'; readonly issuer: string };

/**
 * Looks for what a signature holds under, once it is known not to hold. Secrets stay in this room: what
 * is told of one is the mistake that was made with it.
 *
 * @param issuer - the one the token names, where it is trusted
 * @param now - seconds since the epoch
 */
export async function findSignature(
  token: CompactToken,
  alg: string,
  issuer: IssuerKeys | undefined,
  trusted: TrustedIssuers,
  now: number,
): Promise<SignatureFinding | undefined> {
  const own = issuer === undefined ? [] : await keysOf(issuer, now);
  const other = await firstThatVerifies(own, alg, token);
  if (other !== undefined) return { kind: 'key', kid: other.kid };
  for (const { premise, change } of SECRET_VARIANTS) {
    const holds = own.some(
      (key) => key.alg === alg && key instanceof HmacKey && key.verifiesUnder(token, change),
    );
    if (holds) return { kind: 'secret', premise };
  }
  let tried = 0;
  for (const another of trusted.all?.() ?? []) {
    if (another.issuer === issuer?.issuer) continue;
    const keys = another.known?.() ?? [];
    tried += keys.length;
    if (tried > MOST_KEYS) return undefined;
    if ((await firstThatVerifies(keys, alg, token)) !== undefined) {
      return { kind: 'issuer', issuer: another.issuer };
    }
  }
  return undefined;
}

/** Every key of an issuer that can be listed, else those that a token without `kid` may have. */
async function keysOf(issuer: IssuerKeys, now: number): Promise<readonly VerificationKey[]> {
  return issuer.known?.() ?? issuer.candidates(undefined, now);
}

async function firstThatVerifies(
  keys: readonly VerificationKey[],
  alg: string,
  token: CompactToken,
): Promise<VerificationKey | undefined> {
  for (const key of keys) {
    if (key.alg === alg && (await key.verify(token))) return key;
  }
  return undefined;
}
