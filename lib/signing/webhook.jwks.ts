import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import type { PublicJwk } from '../token/keys/public-jwk.js';
import type { SigningKeySource } from './signing-key-source.js';
import { keySet } from './key-set.js';
import { publicationFaults } from './published-keys.js';

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
