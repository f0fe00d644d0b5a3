import { RotatingTokenSigner } from '../token/rotating-token-signer.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { TokenSignerOptions, WebhookTokenInput } from '../token/token-signer.js';
import type { DestinationSigner } from '../publisher/options/publisher-options.interface.js';
import type { SealedEndpointKey, StoredEndpoint } from './endpoint-store.js';
import type { SecretSealer } from './secret-sealer.js';

/** Signs with the keys of a stored endpoint. They are opened when they are first needed, and kept. */
export class SealedTokenSigner implements DestinationSigner {
  readonly algorithms = ['HS256'] as const;

  private signer: RotatingTokenSigner | undefined;

  constructor(
    private readonly endpoint: Pick<StoredEndpoint, 'id' | 'keys'>,
    private readonly sealer: SecretSealer,
    private readonly options: Omit<TokenSignerOptions, 'key'>,
  ) {}

  /** @throws {@link WebhookStoreError} `sealed_secret_unreadable`, at each call until it is readable */
  sign(input: WebhookTokenInput): MaybePromise<string> {
    this.signer ??= this.open();
    return this.signer.sign(input);
  }

  private open(): RotatingTokenSigner {
    const keys = this.endpoint.keys.map((key, index) => ({
      kid: key.kid,
      key: this.sealer.open(this.endpoint.id, key),
      // There is always one to sign with, also by a clock that is behind the one of the process that made it.
      notBefore: index === 0 ? undefined : momentOf(key),
    }));
    return new RotatingTokenSigner({ ...this.options, keys });
  }
}

function momentOf({ notBefore }: SealedEndpointKey): Date {
  return new Date(notBefore);
}
