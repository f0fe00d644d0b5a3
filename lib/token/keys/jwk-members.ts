import type { JsonWebKey } from 'node:crypto';
import type { KeyUse } from './key-use.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/**
 * Holds what a JWK says of itself against what it is to be used for (RFC 7517, sections 4.2 to 4.4).
 *
 * @returns the contradiction and its remedy
 */
export function jwkFault(
  jwk: JsonWebKey,
  alg: SignatureAlgorithm,
  use: KeyUse,
): string | undefined {
  if (jwk['use'] !== undefined && jwk['use'] !== 'sig') {
    return 'the JWK says that it is not for signatures ("use" is not "sig"): give the key that is';
  }
  const operations: unknown = jwk['key_ops'];
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes(use))) {
    return `the JWK says what it is for ("key_ops"), and "${use}" is not among it: give the key that is for it`;
  }
  return jwk['alg'] === undefined || jwk['alg'] === alg
    ? undefined
    : `the JWK says that it is for another algorithm than ${alg}: a key serves one, so set alg to the JWK's`;
}
