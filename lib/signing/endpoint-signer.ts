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
import type { HeldSigningKeys, SigningKeySource } from './signing-keys.js';

/** Rotating keys, or the provider that loads them. */
export type PublisherKeys = readonly SigningKeyInput[] | KeyProvider<readonly SigningKeyInput[]>;

export interface EndpointSigner extends Pick<TokenSigner, 'inlineLimit'> {
  /** Of all known keys; those of a provider are known once it has loaded them. */
  readonly algorithms: readonly SignatureAlgorithm[];
  /** Signs a new token, as {@link TokenSigner.sign}. */
  sign(input: WebhookTokenInput): Promise<string>;
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
  private parsed: HeldSigningKeys | undefined;
  /** Of the parsed keys; newest first. */
  private keys: readonly RotatingKey[] = [];
  private readonly now: TokenClock;

  /**
   * @param source - a list, or a provider, whose keys change at run time; each list of keys is parsed once
   * @throws {@link WebhookConfigurationError} as {@link createTokenSigner}, for the first key that cannot be used
   */
  constructor(
    private readonly source: SigningKeySource,
    private readonly options: Omit<TokenSignerOptions, 'key'>,
  ) {
    this.now = options.now ?? Date.now;
    this.parse(source.known);
  }

  /** Of all keys, whenever they may be used. */
  get algorithms(): readonly SignatureAlgorithm[] {
    return this.parse(this.source.known).map(({ signer }) => signer.alg);
  }

  /** Of the key that is used now. */
  get inlineLimit(): number | undefined {
    return this.activeOf(this.source.known)?.inlineLimit;
  }

  async sign(input: WebhookTokenInput): Promise<string> {
    const signer = this.activeOf(await this.source.current());
    if (signer === undefined) throw noSigningKey();
    return signer.sign(input);
  }

  private activeOf(held: HeldSigningKeys): TokenSigner | undefined {
    const now = readSeconds(this.now);
    return this.parse(held).find(({ window }) => maySign(window, now))?.signer;
  }

  private parse(held: HeldSigningKeys): readonly RotatingKey[] {
    if (this.parsed === held) return this.keys;
    const rotating = held.keys.map((key) => ({
      signer: createTokenSigner({ ...this.options, key }),
      window: signingWindow(key).window,
    }));
    // Reversed first: the sort is stable, and of two keys of one age the later in the list is the newer.
    this.keys = rotating.toReversed().sort(newerFirst);
    this.parsed = held;
    return this.keys;
  }
}

/** Not a difference: most windows are open, and infinities have none. */
function newerFirst(a: RotatingKey, b: RotatingKey): number {
  const [first, second] = [a.window?.opens ?? -Infinity, b.window?.opens ?? -Infinity];
  if (first === second) return 0;
  return first > second ? -1 : 1;
}
