import type { PublicJwk } from '../token/keys/public-jwk.js';
import type { HeldSigningKeys } from './held-signing-keys.js';
import { publishedKeys } from './published-keys.js';

type KeyLists = readonly HeldSigningKeys[];

/**
 * The public keys that receivers need at a time: those that sign now, those that will, and no more those whose time
 * is over. A key that several lists hold is there once.
 *
 * @param now - seconds since the epoch
 */
export function keySet(lists: KeyLists, now: number): PublicJwk[] {
  const keys = new Map<string, PublicJwk>();
  for (const { jwk, closes } of lists.flatMap(({ keys: held }) => publishedKeys(held))) {
    if (now < closes) keys.set(JSON.stringify(jwk), jwk);
  }
  return [...keys.values()];
}

/** Says what is wrong with the keys of all lists together, with remedies. */
export function keySetFaults(lists: KeyLists): string[] {
  const keys = keySet(lists, -Infinity);
  if (keys.length === 0) {
    return [
      'there is no public key to serve, as shared secrets have none: give the publisher a key pair, or leave jwks out',
    ];
  }
  const names = new Set(keys.map(({ kid }) => kid));
  return names.size === keys.length
    ? []
    : ['two different keys of the publisher have one kid: give each its own'];
}
