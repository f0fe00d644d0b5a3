import type { KeyProvider } from '../keys/key-provider.js';
import type { KeyWindow } from '../token/keys/key-material.js';
import { signingWindow, type SigningKeyInput } from '../token/keys/signing-key.js';
import {
  maySign,
  noSigningKey,
  createTokenSigner,
  type TokenSigner,
  type TokenSignerOptions,
  type WebhookTokenInput,
} from '../token/token-signer.js';
import { readSeconds, type TokenClock } from '../token/validate-claims.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';
import type { HeldSigningKeys, ProvidedSigningKeys } from './signing-keys.js';

/** Rotating keys, or the provider that loads them. */
export type PublisherKeys = readonly SigningKeyInput[] | KeyProvider<readonly SigningKeyInput[]>;

/** Signs the requests to an endpoint. */
export interface EndpointSigner extends Pick<TokenSigner, 'inlineLimit' | 'sign'> {
  /** Of all known keys; those of a provider are known once it has loaded them. */
  readonly algorithms: readonly SignatureAlgorithm[];
}

/** Who signs, and with which keys in turn. */
interface RotatingTokenSignerOptions extends Omit<TokenSignerOptions, 'key'> {
  /** None: nothing can be signed. */
  readonly keys: readonly SigningKeyInput[];
}

interface RotatingKey {
  readonly signer: TokenSigner;
  readonly window: KeyWindow | undefined;
}

/**
 * Signs with the newest of the keys that may be used now: the one whose `notBefore` has come last, and of two that
 * came together the later in the list. It is chosen at each signing, so a rotation needs no timer.
 */
export class RotatingTokenSigner implements EndpointSigner {
  /** Newest first. */
  private readonly keys: readonly RotatingKey[];
  private readonly now: TokenClock;

  /** @throws {@link WebhookConfigurationError} as {@link createTokenSigner}, for the first key that cannot be used */
  constructor({ keys, ...shared }: RotatingTokenSignerOptions) {
    this.now = shared.now ?? Date.now;
    const rotating = keys.map((key) => ({
      signer: createTokenSigner({ ...shared, key }),
      window: signingWindow(key).window,
    }));
    // Reversed first: the sort is stable, and of two keys of one age the later in the list is the newer.
    this.keys = rotating.toReversed().sort(newerFirst);
  }

  /** Of all keys, whenever they may be used. */
  get algorithms(): readonly SignatureAlgorithm[] {
    return this.keys.map(({ signer }) => signer.alg);
  }

  /** Of the key that is used now. */
  get inlineLimit(): number | undefined {
    return this.active()?.inlineLimit;
  }

  async sign(input: WebhookTokenInput): Promise<string> {
    const signer = this.active();
    if (signer === undefined) throw noSigningKey();
    return signer.sign(input);
  }

  private active(): TokenSigner | undefined {
    const now = readSeconds(this.now);
    return this.keys.find(({ window }) => maySign(window, now))?.signer;
  }
}

/** Not a difference: most windows are open, and infinities have none. */
function newerFirst(a: RotatingKey, b: RotatingKey): number {
  const [first, second] = [a.window?.opens ?? -Infinity, b.window?.opens ?? -Infinity];
  if (first === second) return 0;
  return first > second ? -1 : 1;
}

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
