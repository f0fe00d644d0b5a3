import { parseDuration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { Problems } from '../options/problems.js';
import type { ConfigurationProblem } from '../errors/webhook.error.js';
import type { KeyProvider } from '../keys/key-provider.js';
import {
  signingKeyProblems,
  spentKeyProblems,
  HeldSigningKeys,
  ProvidedSigningKeys,
  type SigningKeySource,
} from './signing-keys.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import { sharedProblems } from '../token/token-signer.js';
import { publicationProblems } from './webhook.jwks.js';
import { type EndpointSigner, type PublisherKeys, RotatingTokenSigner } from './endpoint-signer.js';

const MS_PER_SECOND = 1_000;

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

/** The paths of options; problems of an option without a path are reported elsewhere. */
type SigningPaths = Partial<Record<'issuer' | 'lifetime' | keyof Material, string>>;

type Material = Omit<SigningOptions, 'issuer'>;

const MATERIAL = ['secret', 'key', 'keys'] as const satisfies (keyof Material)[];

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

  /** @returns `undefined` on a problem, which is added to the list */
  resolve(options: SigningOptions, paths: SigningPaths, at: Problems): EndpointSigner | undefined {
    const signer = this.signerOf(options, paths, at);
    this.failed ||= signer === undefined;
    return signer;
  }

  private signerOf(
    options: SigningOptions,
    paths: SigningPaths,
    at: Problems,
  ): EndpointSigner | undefined {
    if (isAmbiguous(options, paths, at)) return undefined;
    const { issuer, secret, key, keys } = options;
    const { clock, lifetime } = this.context;
    const shared = { issuer, lifetime, now: () => clock.now() };
    const found = [
      ...(keys === undefined
        ? this.problemsOfKey(key ?? secret, key === undefined ? 'secret' : 'key', issuer)
        : this.problemsOfKeys(keys, issuer)),
      ...sharedProblems(shared),
    ];
    addWhereListed(found, paths, at);
    if (found.length > 0) return undefined;
    const source = this.sourceOf(options, () => at.at(paths.keys ?? 'keys'));
    if (issuer === this.context.issuer) this.published.add(source);
    return new RotatingTokenSigner(source, shared);
  }

  private problemsOfKey(
    key: unknown,
    name: 'secret' | 'key',
    issuer: string,
  ): ConfigurationProblem[] {
    return this.problemsOfList([key], issuer).map(({ message }) => ({ path: name, message }));
  }

  private problemsOfKeys(keys: PublisherKeys, issuer: string): ConfigurationProblem[] {
    if (!isProvider(keys)) return this.problemsOfList(keys, issuer);
    const durations = ['ttl', 'maxStale'] as const;
    return durations
      .filter((name) => !((parseDuration(keys[name]) ?? 0) > 0))
      .map((name) => ({
        path: 'keys',
        message: `the provider's ${name} must be a positive duration, such as '5m' or 300000`,
      }));
  }

  private problemsOfList(keys: unknown, issuer: string): ConfigurationProblem[] {
    const found = this.problemsOfAny(keys, issuer);
    return found.length > 0 ? found : spentKeyProblems(keys as SigningKeyInput[], this.seconds());
  }

  private problemsOfAny(keys: unknown, issuer: string): ConfigurationProblem[] {
    const found = signingKeyProblems(keys, this.seconds());
    const isPublished = this.context.isPublished && issuer === this.context.issuer;
    return found.length > 0 || !isPublished
      ? found
      : publicationProblems(keys as SigningKeyInput[]);
  }

  private sourceOf(
    { issuer, secret, key, keys }: SigningOptions,
    pathOfProvider: () => string,
  ): SigningKeySource {
    if (keys === undefined) return new HeldSigningKeys([key ?? secret!]);
    if (!isProvider(keys)) return new HeldSigningKeys(keys);
    const known = this.providers.get(keys);
    if (known !== undefined) return known;
    const source = new ProvidedSigningKeys(keys, {
      path: pathOfProvider(),
      clock: this.context.clock,
      problemsOf: (loaded) => this.problemsOfAny(loaded, issuer),
    });
    this.providers.set(keys, source);
    return source;
  }

  private seconds(): number {
    return this.context.clock.now() / MS_PER_SECOND;
  }
}

function isProvider(keys: PublisherKeys): keys is KeyProvider<readonly SigningKeyInput[]> {
  const { load, subscribe } = (keys ?? {}) as { load?: unknown; subscribe?: unknown };
  return typeof load === 'function' && typeof subscribe === 'function';
}

function isAmbiguous(options: SigningOptions, paths: SigningPaths, at: Problems): boolean {
  const [first, second] = MATERIAL.filter((name) => options[name] !== undefined);
  if (first === undefined || second === undefined) return false;
  const path = paths[second];
  if (path !== undefined) {
    at.add(path, `cannot be combined with ${first}; set only one of secret, key and keys`);
  }
  return true;
}

function addWhereListed(
  found: readonly ConfigurationProblem[],
  paths: SigningPaths,
  at: Problems,
): void {
  const listed = found.flatMap(({ path, message }) => {
    const [name = ''] = path.split('[', 1);
    const known = paths[name as keyof SigningPaths];
    return known === undefined ? [] : [{ path: `${known}${path.slice(name.length)}`, message }];
  });
  at.addOthers(listed);
}
