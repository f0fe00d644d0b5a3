import { RotatingTokenSigner } from '../../token/rotating-token-signer.js';
import type { SigningKeyInput } from '../../token/signing-key.js';
import type { MaybePromise } from '../../token/token-key.js';
import type { TokenSignerOptions, WebhookTokenInput } from '../../token/token-signer.js';
import type { DestinationSigner } from '../options/publisher-options.interface.js';
import type { SigningKeySource } from './signing-key-source.js';

/** Signs for one issuer with keys that may be others tomorrow. They are parsed once for each list. */
export class SourcedTokenSigner implements DestinationSigner {
  private keys: readonly SigningKeyInput[] | undefined;
  private signer: RotatingTokenSigner | undefined;

  constructor(
    private readonly source: SigningKeySource,
    private readonly options: Omit<TokenSignerOptions, 'key'>,
  ) {}

  get inlineLimit(): number | undefined {
    return this.signerFor(this.source.known).inlineLimit;
  }

  sign(input: WebhookTokenInput): MaybePromise<string> {
    const keys = this.source.current();
    return keys instanceof Promise
      ? keys.then((loaded) => this.signerFor(loaded).sign(input))
      : this.signerFor(keys).sign(input);
  }

  private signerFor(keys: readonly SigningKeyInput[]): RotatingTokenSigner {
    if (this.signer === undefined || this.keys !== keys) {
      this.signer = new RotatingTokenSigner({ ...this.options, keys });
      this.keys = keys;
    }
    return this.signer;
  }
}
