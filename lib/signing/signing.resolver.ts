import { parseDuration, SECOND } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { Problems } from '../options/problems.js';
import type { KeyProvider } from '../keys/key-provider.js';
import {
  checkSigningKeys,
  checkSpentKeys,
  HeldSigningKeys,
  ProvidedSigningKeys,
  type SigningKeySource,
} from './signing-keys.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import { checkShared } from '../token/token-signer.js';
import { publicationProblems } from './webhook.jwks.js';
import { type EndpointSigner, type PublisherKeys, RotatingTokenSigner } from './endpoint-signer.js';

/** The issuer, and one of the three kinds of key. */
export interface SigningOptions {
  readonly issuer: string;
  readonly secret?: string | undefined;
  readonly key?: SigningKeyInput | undefined;
  readonly keys?: PublisherKeys | undefined;
}

/** Shared by all signers of a publisher. */
interface SigningContext {
  /** The publisher's own issuer; keys of other issuers are not published. */
  readonly issuer: string;
  /** Seconds. */
  readonly lifetime: number | undefined;
  readonly clock: WebhookClock;
  /** Whether the public keys are served. */
  readonly isPublished: boolean;
}

/** The options of a key, of which only one may be set. */
export const KEY_OPTIONS = ['secret', 'key', 'keys'] as const satisfies (keyof SigningOptions)[];

/** Creates the signers of a publisher, and collects their keys. */
export class SigningResolver {
  private readonly providers = new Map<object, ProvidedSigningKeys>();
  private readonly published = new Set<SigningKeySource>();
  private failed = false;

  constructor(private readonly context: SigningContext) {}

  /** Providers that must load their keys before anything is signed. */
  get provided(): readonly ProvidedSigningKeys[] {
    return [...this.providers.values()];
  }

  /** The keys of the publisher's own issuer. */
  get sources(): readonly SigningKeySource[] {
    return [...this.published];
  }

  /** Whether a signer could not be created, so that the known keys are incomplete. */
  get hasProblems(): boolean {
    return this.failed;
  }

  /**
   * @param own - the options whose problems are added to the list; those of others are reported elsewhere
   * @returns `undefined` on a problem
   */
  resolve(
    options: SigningOptions,
    own: readonly string[],
    at: Problems,
  ): EndpointSigner | undefined {
    const signer = this.signerOf(options, own, at);
    this.failed ||= signer === undefined;
    return signer;
  }

  private signerOf(
    options: SigningOptions,
    own: readonly string[],
    at: Problems,
  ): EndpointSigner | undefined {
    if (isAmbiguous(options, own, at)) return undefined;
    const { issuer } = options;
    const { clock, lifetime } = this.context;
    const shared = { issuer, lifetime, now: () => clock.now() };
    const found = new Problems();
    this.checkKeys(options, found);
    checkShared(shared, found, 'tokenLifetime');
    at.addOthers(found.all.filter(({ path }) => own.includes(path.split('[', 1)[0]!)));
    if (found.all.length > 0) return undefined;
    const source = this.sourceOf(options, at);
    if (issuer === this.context.issuer) this.published.add(source);
    return new RotatingTokenSigner(source, shared);
  }

  private checkKeys({ issuer, secret, key, keys }: SigningOptions, at: Problems): void {
    if (keys === undefined) {
      const single = new Problems();
      this.checkList([key ?? secret], issuer, single);
      const path = key === undefined ? 'secret' : 'key';
      at.addOthers(single.all.map(({ message }) => ({ path, message })));
    } else if (isProvider(keys)) {
      for (const name of ['ttl', 'maxStale'] as const) {
        at.require(
          (parseDuration(keys[name]) ?? 0) > 0,
          'keys',
          `the provider's ${name} must be a positive duration, such as '5m' or 300000`,
        );
      }
    } else {
      this.checkList(keys, issuer, at);
    }
  }

  private checkList(keys: unknown, issuer: string, at: Problems): void {
    this.checkLoaded(keys, issuer, at);
    if (at.all.length === 0) checkSpentKeys(keys as SigningKeyInput[], this.seconds(), at);
  }

  private checkLoaded(keys: unknown, issuer: string, at: Problems): void {
    checkSigningKeys(keys, this.seconds(), at);
    const isPublished = this.context.isPublished && issuer === this.context.issuer;
    if (at.all.length === 0 && isPublished) {
      at.addOthers(publicationProblems(keys as SigningKeyInput[]));
    }
  }

  private sourceOf({ issuer, secret, key, keys }: SigningOptions, at: Problems): SigningKeySource {
    if (keys === undefined) return new HeldSigningKeys([key ?? secret!]);
    if (!isProvider(keys)) return new HeldSigningKeys(keys);
    const known = this.providers.get(keys);
    if (known !== undefined) return known;
    const source = new ProvidedSigningKeys(keys, {
      path: at.at(''),
      clock: this.context.clock,
      check: (loaded, problems) => this.checkLoaded(loaded, issuer, problems),
    });
    this.providers.set(keys, source);
    return source;
  }

  private seconds(): number {
    return this.context.clock.now() / SECOND;
  }
}

function isProvider(keys: PublisherKeys): keys is KeyProvider<readonly SigningKeyInput[]> {
  const { load, subscribe } = (keys ?? {}) as { load?: unknown; subscribe?: unknown };
  return typeof load === 'function' && typeof subscribe === 'function';
}

function isAmbiguous(options: SigningOptions, own: readonly string[], at: Problems): boolean {
  const [first, second] = KEY_OPTIONS.filter((name) => options[name] !== undefined);
  if (first === undefined || second === undefined) return false;
  if (own.includes(second)) {
    at.add(second, `cannot be combined with ${first}; set only one of secret, key and keys`);
  }
  return true;
}
