import type { ConfigurationFault } from '../../errors/webhook.error.js';
import { identifierRule, isIdentifier } from '../identifier.js';
import { DEFAULT_CLOCK_TOLERANCE, MAX_KEYS_TRIED } from '../webhook-token.constants.js';
import type { HmacKey } from './hmac-key.js';
import type { JoseKey } from './jose-key.js';
import { type KeyInput, type KeyPolicy, parseKey, type WebhookKey } from './key-material.js';
import type { IssuerKeys, KeySource, TrustedIssuers } from './key-source.js';
import type { KeyWindow } from './key-window.js';
import type { VerificationKey } from './token-key.js';

/** A key, and when it holds; without a window, always. */
interface WindowedKey<Key extends VerificationKey = VerificationKey> {
  readonly key: Key;
  readonly window: KeyWindow | undefined;
}

/** The keys of one issuer that are at hand. */
export class StaticIssuerKeys implements IssuerKeys {
  private readonly named = new Map<string, readonly VerificationKey[]>();
  private readonly unnamed: readonly VerificationKey[];
  private readonly all: readonly VerificationKey[];
  /** Of the keys that have one; most issuers have none, and then no key costs a look at the time. */
  private readonly windows: ReadonlyMap<VerificationKey, KeyWindow> | undefined;

  /** @param clockTolerance - seconds by which a window opens earlier; it closes when it says */
  constructor(
    readonly issuer: string,
    keys: readonly WindowedKey[],
    private readonly clockTolerance: number,
  ) {
    this.all = keys.map(({ key }) => key);
    this.unnamed = this.all.filter(({ kid }) => kid === undefined);
    for (const key of this.all) {
      if (key.kid === undefined) continue;
      this.named.set(key.kid, [...(this.named.get(key.kid) ?? []), key]);
    }
    for (const [kid, named] of this.named) this.named.set(kid, [...named, ...this.unnamed]);
    const windows = keys.flatMap(({ key, window }) =>
      window === undefined ? [] : [[key, window] as const],
    );
    this.windows = windows.length === 0 ? undefined : new Map(windows);
  }

  /**
   * The keys a token may have been signed with: those its `kid` names and those without a name;
   * without `kid` all of them, unless they are so many that trying them would be a lever. A key whose
   * window has not opened, or has closed, is as if it were not there.
   */
  candidates(kid: string | undefined, now: number): readonly VerificationKey[] {
    const known = kid === undefined ? this.all : (this.named.get(kid) ?? this.unnamed);
    if (this.windows === undefined && known.length <= MAX_KEYS_TRIED) return known;
    const open = known.filter((key) => this.holds(key, now));
    return kid === undefined && open.length > MAX_KEYS_TRIED ? [] : open;
  }

  known(): readonly VerificationKey[] {
    return this.all;
  }

  /** Whether a key has this name, valid now or not. */
  names(kid: string): boolean {
    return this.named.has(kid);
  }

  /** Whether every key's window has closed. */
  hasEnded(now: number): boolean {
    return this.all.every((key) => (this.windows?.get(key)?.closes ?? Infinity) <= now);
  }

  /** The most keys without a name that are ever valid at one time. */
  get mostUnnamedAtOnce(): number {
    // That many are valid at a moment when one of them begins to be.
    const openings = this.unnamed.map((key) => this.opening(key));
    return Math.max(
      0,
      ...openings.map((at) => this.unnamed.filter((key) => this.holds(key, at)).length),
    );
  }

  private holds(key: VerificationKey, now: number): boolean {
    const window = this.windows?.get(key);
    return window === undefined || (this.opening(key) <= now && now < window.closes);
  }

  private opening(key: VerificationKey): number {
    return (this.windows?.get(key)?.opens ?? -Infinity) - this.clockTolerance;
  }
}

type Entry = WindowedKey<HmacKey | JoseKey>;

/** Collects the keys of one issuer, and refuses pairs of them that cannot both be meant. */
class KeyTwins {
  private readonly entries: Entry[] = [];

  /** What was added, without repetitions. */
  get distinct(): readonly Entry[] {
    return this.entries;
  }

  /**
   * Adds a key. Quite the same key once more changes nothing: while no rotation is on, the variable of the old
   * secret and that of the new one may well hold the same.
   *
   * @returns what is wrong, and the remedy
   */
  add(added: Entry): string | undefined {
    const twins = this.entries.filter(({ key }) => key.holdsSame(added.key));
    const otherAlgorithm = twins.find(({ key }) => key.alg !== added.key.alg)?.key.alg;
    if (otherAlgorithm !== undefined) {
      return `the same key stands here for ${otherAlgorithm} already, and a key serves one algorithm (RFC 8725, section 3.1): make one for each`;
    }
    // Otherwise the entry without an end would keep alive what the other one revokes.
    if (!twins.every((twin) => sameWindow(twin, added))) {
      return 'the same key stands here already, with another notBefore or notAfter: keep the one that is meant';
    }
    if (twins.some(({ key }) => key.kid === added.key.kid)) return undefined;
    const { kid } = added.key;
    if (kid !== undefined && this.entries.some(({ key }) => key.kid === kid)) {
      return 'another key of the issuer has this kid: a name stands for one key, so give each its own';
    }
    this.entries.push(added);
    return undefined;
  }
}

function sameWindow({ window: one }: Entry, { window: other }: Entry): boolean {
  return one?.opens === other?.opens && one?.closes === other?.closes;
}

/** An issuer that is trusted, with its keys. */
export interface TrustedIssuer {
  /** The `iss` of its tokens, compared exactly. */
  readonly issuer: string;
  /** Shared HS256 secret, or several while one replaces another. */
  readonly secret?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Keys with a name, a time or another algorithm. */
  readonly keys?: readonly WebhookKey[] | undefined;
}

/** How keys are read and when they hold. */
export interface KeyRingOptions extends KeyPolicy {
  /** Seconds by which windows of keys open earlier; default 60. */
  readonly clockTolerance?: number | undefined;
}

/**
 * Finds keys of an issuer that are not at hand. It has its own say on what is wrong with the entry.
 *
 * @param configured - the keys that stand in the entry itself; `undefined` where there are none
 * @returns `undefined` where the entry does not ask for more
 */
export type MoreKeys = (
  entry: TrustedIssuer,
  configured: StaticIssuerKeys | undefined,
  fault: (path: string, message: string) => void,
) => IssuerKeys | undefined;

/** The keys of every trusted issuer; finding one costs the same for one issuer and for ten thousand. */
export class KeyRing implements KeySource, TrustedIssuers {
  /** The only issuer, when there is just one. */
  readonly sole: IssuerKeys | undefined;

  private constructor(private readonly issuers: ReadonlyMap<string, IssuerKeys>) {
    this.sole = issuers.size === 1 ? issuers.values().next().value : undefined;
  }

  of(issuer: string): IssuerKeys | undefined {
    return this.issuers.get(issuer);
  }

  all(): Iterable<IssuerKeys> {
    return this.issuers.values();
  }

  ring(): this {
    return this;
  }

  /**
   * The issuers none of whose tokens can be accepted any more, since every key of theirs has ended.
   *
   * @param now - seconds since the epoch
   */
  ended(now: number): string[] {
    return [...this.issuers.values()]
      .filter((keys) => keys instanceof StaticIssuerKeys && keys.hasEnded(now))
      .map(({ issuer }) => issuer);
  }

  /** Parses every key once, and says everything that is wrong with them. */
  static build(
    trusted: readonly TrustedIssuer[],
    options: KeyRingOptions,
    more: MoreKeys = nothingFetched,
  ): { ring: KeyRing; faults: ConfigurationFault[] } {
    const faults: ConfigurationFault[] = [];
    const issuers = new Map<string, IssuerKeys>();
    trusted.forEach((entry, index) => {
      const fault = (path: string, message: string): void => {
        faults.push({ path: `issuers[${index}]${path}`, message });
      };
      if (!isIdentifier(entry.issuer)) return fault('.issuer', identifierRule('issuer'));
      if (issuers.has(entry.issuer)) {
        return fault(
          '.issuer',
          'the issuer stands in the list twice: put all its keys into one entry',
        );
      }
      const inputs = keyInputs(entry);
      const configured =
        inputs.length === 0 ? undefined : configuredKeys(entry.issuer, inputs, options, fault);
      const keys = more(entry, configured, fault) ?? configured;
      if (keys === undefined) {
        fault('', 'the issuer has no key: give it a secret or keys');
      }
      issuers.set(entry.issuer, keys ?? new StaticIssuerKeys(entry.issuer, [], 0));
    });
    if (trusted.length === 0) {
      faults.push({
        path: 'issuers',
        message: 'nobody is trusted: name at least one issuer with its secret',
      });
    }
    return { ring: new KeyRing(issuers), faults };
  }
}

function configuredKeys(
  issuer: string,
  inputs: readonly { input: KeyInput; path: string }[],
  options: KeyRingOptions,
  fault: (path: string, message: string) => void,
): StaticIssuerKeys {
  const keys = new KeyTwins();
  for (const { input, path } of inputs) {
    const parsed = parseKey(input, 'verify', options);
    const message = parsed.fault ?? keys.add(parsed);
    if (message !== undefined) fault(path, message);
  }
  const { clockTolerance = DEFAULT_CLOCK_TOLERANCE } = options;
  const configured = new StaticIssuerKeys(issuer, keys.distinct, clockTolerance);
  if (configured.mostUnnamedAtOnce > MAX_KEYS_TRIED) {
    fault(
      '',
      `at most ${MAX_KEYS_TRIED} keys without kid are tried for a token: give them names, or retire some`,
    );
  }
  return configured;
}

function keyInputs(entry: TrustedIssuer): { input: KeyInput; path: string }[] {
  const { secret, keys = [] } = entry;
  const secrets = secret === undefined ? [] : Array.isArray(secret) ? secret : [secret];
  return [
    ...(secrets as (string | Uint8Array)[]).map((input, i) => ({
      input,
      path: Array.isArray(secret) ? `.secret[${i}]` : '.secret',
    })),
    ...keys.map((input, i) => ({ input, path: `.keys[${i}]` })),
  ];
}

/** The core does no I/O, so it cannot honour an address of keys, and must not pass over it in silence. */
const nothingFetched: MoreKeys = (entry, _configured, fault) => {
  if ((entry as { jwksUri?: unknown }).jwksUri !== undefined) {
    fault(
      '.jwksUri',
      'this verifier fetches nothing: use WebhookModule, or pass a KeySource in place of the list',
    );
  }
  return undefined;
};
