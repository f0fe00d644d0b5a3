import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { HeldSigningKeys, SigningKeySource } from './provided-signing-keys.js';
import { publicationProblems, publishedKeys, type PublicJwk } from './published-keys.js';

type KeyLists = readonly HeldSigningKeys[];

/**
 * The public keys that receivers need now: all keys that have not expired. A key in several lists is listed once.
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

/** Returns the problems of all lists together, with remedies. */
export function keySetProblems(lists: KeyLists): string[] {
  const keys = keySet(lists, -Infinity);
  if (keys.length === 0) {
    return [
      'there is no public key to serve, since shared secrets have none; add a key pair to the publisher, or leave jwks out',
    ];
  }
  const names = new Set(keys.map(({ kid }) => kid));
  return names.size === keys.length
    ? []
    : ['two different keys of the publisher have the same kid; give each its own'];
}

const MS_PER_SECOND = 1_000;

/** A JSON Web Key Set, RFC 7517 section 5, of public keys. */
export interface WebhookKeySet {
  readonly keys: readonly PublicJwk[];
}

/**
 * The public keys of the publisher's own issuer, with which receivers verify without a secret. The option `jwks` serves them;
 * inject this class to serve them elsewhere.
 */
export class WebhookJwks {
  constructor(
    private readonly sources: readonly SigningKeySource[],
    private readonly clock: WebhookClock,
  ) {}

  /**
   * The current key set. It never contains shared secrets or private keys.
   *
   * @throws {@link WebhookConfigurationError} for a key pair without a `kid` or a signer without a `publicKey`; if the
   *   option `jwks` is set, start-up fails for them
   */
  async document(): Promise<WebhookKeySet> {
    const lists = await Promise.all(this.sources.map(async (source) => source.current()));
    const problems = lists.flatMap(({ keys }) => publicationProblems(keys));
    if (problems.length > 0) throw new WebhookConfigurationError(problems);
    return { keys: keySet(lists, this.clock.now() / MS_PER_SECOND) };
  }
}
