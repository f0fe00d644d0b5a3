import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { PublicJwk } from './public-jwk.js';
import type { HeldSigningKeys, SigningKeySource } from './provided-signing-keys.js';
import { publicationFaults, publishedKeys } from './published-keys.js';

type KeyLists = readonly HeldSigningKeys[];

/**
 * The public keys that receivers need at a time: those that sign now, those that will, and no more those whose time
 * is over. A key that several lists hold is there once.
 *
 * @param now - seconds since the epoch
 */
function keySet(lists: KeyLists, now: number): PublicJwk[] {
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

const MS_PER_SECOND = 1_000;

/** A JSON Web Key Set, RFC 7517 section 5, of public keys. */
export interface WebhookKeySet {
  readonly keys: readonly PublicJwk[];
}

/**
 * The publisher's public keys, by which receivers verify without a secret: those of its own issuer that sign now or
 * will. The option `jwks` serves them; inject this to serve them elsewhere.
 */
export class WebhookJwks {
  constructor(
    private readonly sources: readonly SigningKeySource[],
    private readonly clock: WebhookClock,
  ) {}

  /**
   * The key set of this moment. Shared secrets are not in it, nor anything private.
   *
   * @throws {@link WebhookConfigurationError} for a key pair without a `kid` or a signer without a `publicKey`; where
   *   the option `jwks` is set, start-up has told already
   */
  async document(): Promise<WebhookKeySet> {
    const lists = await Promise.all(this.sources.map(async (source) => source.current()));
    const faults = lists.flatMap(({ keys }) => publicationFaults(keys));
    if (faults.length > 0) throw new WebhookConfigurationError(faults);
    return { keys: keySet(lists, this.clock.now() / MS_PER_SECOND) };
  }
}
