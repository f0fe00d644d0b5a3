import type { ConfigurationFault } from '../errors/webhook.error.js';
import { HMAC_ALGORITHMS } from '../token/keys/hmac-key.js';
import { jwkThumbprint, publicJwk, type PublicJwk } from './public-jwk.js';
import { parseSigningKey, type SigningKeyInput } from '../token/keys/signing-key.js';

/** A key that receivers may find, and how long. */
interface PublishedKey {
  readonly jwk: PublicJwk;
  /** Seconds since the epoch. */
  readonly closes: number;
}

/** The key as receivers find it; neither for a shared secret; or why they could not find it. */
type Publication =
  | { readonly published?: PublishedKey; readonly fault?: undefined }
  | { readonly published?: undefined; readonly fault: string };

/** The public halves of the key pairs in a list; secrets have none. */
export function publishedKeys(keys: readonly SigningKeyInput[]): PublishedKey[] {
  return publicationsOf(keys).flatMap(({ published }) => published ?? []);
}

/**
 * Says which key pairs of a list receivers could not find, with remedies.
 *
 * @returns faults with the paths `keys[0]` and so on
 */
export function publicationFaults(keys: readonly SigningKeyInput[]): ConfigurationFault[] {
  return publicationsOf(keys).flatMap(({ fault }, index) => {
    return fault === undefined ? [] : [{ path: `keys[${index}]`, message: fault }];
  });
}

/** Made once for a list: a key is parsed for it, and whoever knows the path may ask for the set at any rate. */
const known = new WeakMap<readonly SigningKeyInput[], readonly Publication[]>();

function publicationsOf(keys: readonly SigningKeyInput[]): readonly Publication[] {
  let publications = known.get(keys);
  if (publications === undefined) {
    publications = keys.map(publish);
    known.set(keys, publications);
  }
  return publications;
}

function publish(input: SigningKeyInput): Publication {
  const { key, window } = parseSigningKey(input);
  // What is wrong with a key itself is told where it is to sign.
  if (key === undefined || Object.hasOwn(HMAC_ALGORITHMS, key.alg)) return {};
  const { alg, kid } = key;
  const half = key.publicKey?.();
  if (half === undefined) {
    return { fault: 'has no publicKey, which the jwks would serve: give it, or leave jwks out' };
  }
  if (kid === undefined) {
    return {
      fault: `has no kid, by which receivers find a key of the jwks: give it one, such as its thumbprint of RFC 7638, "${jwkThumbprint(half)}"`,
    };
  }
  return { published: { jwk: publicJwk(half, { alg, kid }), closes: window?.closes ?? Infinity } };
}
