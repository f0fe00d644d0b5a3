import { randomBytes, randomUUID } from 'node:crypto';
import type { SealedEndpointKey } from './endpoint-store.js';
import type { SecretSealer } from './secret-sealer.js';

const SECRET_BYTES = 32;

/** A key for an endpoint, sealed; the secret in the clear only where it was made here. */
export interface MadeEndpointKey {
  readonly key: SealedEndpointKey;
  readonly secret?: string;
}

/**
 * Makes a key for an endpoint, of its own secret or of a random one.
 *
 * @param notBefore - epoch milliseconds from which it signs
 */
export function makeEndpointKey(
  sealer: SecretSealer,
  endpointId: string,
  given: string | undefined,
  notBefore: number,
): MadeEndpointKey {
  const secret = given ?? randomBytes(SECRET_BYTES).toString('base64');
  const kid = randomUUID();
  const key = { kid, sealed: sealer.seal(endpointId, kid, secret), notBefore };
  return given === undefined ? { key, secret } : { key };
}

/**
 * Puts a new key behind others. Those that would have come later never signed, and never will.
 *
 * @param overlap - milliseconds for which the old ones go on signing; without any, they are gone
 */
export function rotatedKeys(
  keys: readonly SealedEndpointKey[],
  next: SealedEndpointKey,
  overlap: number,
): SealedEndpointKey[] {
  if (overlap === 0) return [next];
  return [...keys.filter(({ notBefore }) => notBefore < next.notBefore), next];
}
