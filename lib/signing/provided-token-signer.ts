import { RotatingTokenSigner } from './rotating-token-signer.js';
import type { TokenSignerOptions, WebhookTokenInput } from '../token/token-signer.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';
import type { HeldSigningKeys, ProvidedSigningKeys } from './provided-signing-keys.js';
import type { EndpointSigner } from './endpoint-signer.js';

/** Signs with the keys of a provider, which change at run time. Each list of keys is parsed once. */
export class ProvidedTokenSigner implements EndpointSigner {
  private held: HeldSigningKeys | undefined;
  private signer: RotatingTokenSigner | undefined;

  constructor(
    private readonly source: ProvidedSigningKeys,
    private readonly options: Omit<TokenSignerOptions, 'key'>,
  ) {}

  get algorithms(): readonly SignatureAlgorithm[] {
    return this.signerFor(this.source.known).algorithms;
  }

  get inlineLimit(): number | undefined {
    return this.signerFor(this.source.known).inlineLimit;
  }

  async sign(input: WebhookTokenInput): Promise<string> {
    return this.signerFor(await this.source.current()).sign(input);
  }

  private signerFor(held: HeldSigningKeys): RotatingTokenSigner {
    if (this.signer === undefined || this.held !== held) {
      this.signer = new RotatingTokenSigner({ ...this.options, keys: held.keys });
      this.held = held;
    }
    return this.signer;
  }
}
