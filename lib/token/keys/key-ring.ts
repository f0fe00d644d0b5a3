import type { ConfigurationProblem } from '../../errors/webhook.error.js';
import { identifierRule, isIdentifier } from '../identifier.js';
import { DEFAULT_CLOCK_TOLERANCE, MAX_KEYS_TRIED } from '../webhook-token.constants.js';
import type { HmacKey } from './hmac-key.js';
import type { JoseKey } from './key-pair.js';
import {
  type KeyInput,
  type KeyPolicy,
  parseKey,
  type WebhookKey,
  type WindowedKey,
} from './key-material.js';
import type { IssuerKeys, KeySource, TrustedIssuers, VerificationKey } from './key-source.js';

/** A trusted issuer with its keys. */
export interface TrustedIssuer {
  /** The `iss` of its tokens, compared exactly. */
  readonly issuer: string;
  /** Shared HS256 secret, or several during a rotation. */
  readonly secret?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined;
  /** Keys with a kid, a period of use or another algorithm. */
  readonly keys?: readonly WebhookKey[] | undefined;
}

/** How keys are parsed and how long they are valid. */
export interface KeyRingOptions extends KeyPolicy {
  /** Seconds by which a key may be used before its `notBefore`; default 60. */
  readonly clockTolerance?: number | undefined;
}

/**
 * Adds keys from elsewhere, such as a JWKS, to those in an issuer's entry, and checks the options for them.
 *
 * @param configured - the keys in the entry itself; `undefined` if it has none
 * @returns `undefined` if the entry has no other keys
 */
export type MoreKeys = (
  entry: TrustedIssuer,
  configured: StaticIssuerKeys | undefined,
  problem: (path: string, message: string) => void,
) => IssuerKeys | undefined;

/** The keys of all trusted issuers. A lookup takes the same time for one issuer and for ten thousand. */
export class KeyRing implements KeySource, TrustedIssuers {
  /** The issuer, if there is exactly one. */
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
   * The issuers whose keys have all expired, so that none of their tokens is accepted.
   *
   * @param now - seconds since the epoch
   */
  ended(now: number): string[] {
    return [...this.issuers.values()]
      .filter((keys) => keys instanceof StaticIssuerKeys && keys.hasEnded(now))
      .map(({ issuer }) => issuer);
  }

  /** Parses every key and collects all problems. */
  static build(
    trusted: readonly TrustedIssuer[],
    options: KeyRingOptions,
    more: MoreKeys = refuseJwksUri,
  ): { ring: KeyRing; problems: ConfigurationProblem[] } {
    const problems: ConfigurationProblem[] = [];
    const issuers = new Map<string, IssuerKeys>();
    trusted.forEach((entry, index) => {
      const problem = (path: string, message: string): void => {
        problems.push({ path: `issuers[${index}]${path}`, message });
      };
      if (!isIdentifier(entry.issuer)) return problem('.issuer', identifierRule('issuer'));
      if (issuers.has(entry.issuer)) {
        return problem(
          '.issuer',
          `"${entry.issuer}" is listed twice: put all its keys into one entry`,
        );
      }
      const inputs = keyInputs(entry);
      const configured =
        inputs.length === 0 ? undefined : configuredKeys(entry.issuer, inputs, options, problem);
      const keys = more(entry, configured, problem) ?? configured;
      if (keys === undefined) {
        problem('', 'the issuer has no key: set "secret" or "keys"');
      }
      issuers.set(entry.issuer, keys ?? new StaticIssuerKeys(entry.issuer, [], 0));
    });
    if (trusted.length === 0) {
      problems.push({
        path: 'issuers',
        message:
          'add at least one issuer with its secret: without one, every webhook would be rejected',
      });
    }
    return { ring: new KeyRing(issuers), problems };
  }
}

/** The keys of one issuer, all in memory. */
export class StaticIssuerKeys implements IssuerKeys {
  /** Keys with a kid first. */
  private readonly keys: readonly WindowedKey<VerificationKey>[];

  /** @param clockTolerance - seconds by which a window opens earlier; it closes exactly on time */
  constructor(
    readonly issuer: string,
    keys: readonly WindowedKey<VerificationKey>[],
    private readonly clockTolerance: number,
  ) {
    this.keys = [...keys.filter(hasKid), ...keys.filter((one) => !hasKid(one))];
  }

  /**
   * The keys that may have signed a token: those with its `kid` and those without one; for a token without `kid`, all of
   * them, unless they are more than {@link MAX_KEYS_TRIED}. Keys outside their windows are left out.
   */
  candidates(kid: string | undefined, now: number): readonly VerificationKey[] {
    const found = this.keys
      .filter(({ key }) => kid === undefined || key.kid === undefined || key.kid === kid)
      .filter((one) => this.isValid(one, now));
    return kid === undefined && found.length > MAX_KEYS_TRIED ? [] : found.map(({ key }) => key);
  }

  known(): readonly VerificationKey[] {
    return this.keys.map(({ key }) => key);
  }

  /** Whether a key has this kid, valid now or not. */
  hasKid(kid: string): boolean {
    return this.keys.some(({ key }) => key.kid === kid);
  }

  /** Whether the windows of all keys have closed. */
  hasEnded(now: number): boolean {
    return this.keys.every(({ window }) => (window?.closes ?? Infinity) <= now);
  }

  /** The maximum number of keys without kid that are valid at the same time. */
  get maxUnnamedAtOnce(): number {
    const unnamed = this.keys.filter((one) => !hasKid(one));
    // The maximum is reached when one of the windows opens.
    const openings = unnamed.map((one) => this.opening(one));
    return Math.max(
      0,
      ...openings.map((at) => unnamed.filter((one) => this.isValid(one, at)).length),
    );
  }

  private isValid(one: WindowedKey<VerificationKey>, now: number): boolean {
    const { window } = one;
    return window === undefined || (this.opening(one) <= now && now < window.closes);
  }

  private opening({ window }: WindowedKey<VerificationKey>): number {
    return (window?.opens ?? -Infinity) - this.clockTolerance;
  }
}

function hasKid({ key }: WindowedKey<VerificationKey>): boolean {
  return key.kid !== undefined;
}

function configuredKeys(
  issuer: string,
  inputs: readonly { input: KeyInput; path: string }[],
  options: KeyRingOptions,
  problem: (path: string, message: string) => void,
): StaticIssuerKeys {
  const keys = new DistinctKeys();
  for (const { input, path } of inputs) {
    const parsed = parseKey(input, 'verify', options);
    const message = parsed.problem ?? keys.add(parsed);
    if (message !== undefined) problem(path, message);
  }
  const { clockTolerance = DEFAULT_CLOCK_TOLERANCE } = options;
  const configured = new StaticIssuerKeys(issuer, keys.entries, clockTolerance);
  if (configured.maxUnnamedAtOnce > MAX_KEYS_TRIED) {
    problem(
      '',
      `more than ${MAX_KEYS_TRIED} keys without kid are valid at once: set a kid for each, or remove some`,
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

/** The core does no I/O. A `jwksUri` must not be ignored silently, so it is refused. */
const refuseJwksUri: MoreKeys = (entry, _configured, problem) => {
  if ((entry as { jwksUri?: unknown }).jwksUri !== undefined) {
    problem(
      '.jwksUri',
      'createTokenVerifier does not fetch keys: use WebhookModule, or pass the keys of the set in "keys"',
    );
  }
  return undefined;
};

type Entry = WindowedKey<HmacKey | JoseKey>;

/** Collects the keys of one issuer without repetitions, and refuses contradictory ones. */
class DistinctKeys {
  readonly entries: Entry[] = [];

  /**
   * Adds a key unless it is there already: between rotations, the variables of the old and the new secret may have the
   * same value.
   *
   * @returns the problem and its remedy, or `undefined`
   */
  add(added: Entry): string | undefined {
    const copies = this.entries.filter(({ key }) => key.holdsSame(added.key));
    const otherAlgorithm = copies.find(({ key }) => key.alg !== added.key.alg)?.key.alg;
    if (otherAlgorithm !== undefined) {
      return `the same key is listed for ${otherAlgorithm}: use a key for one algorithm only (RFC 8725, section 3.1)`;
    }
    // Otherwise one entry would keep a key alive that the other revokes.
    if (!copies.every((copy) => sameWindow(copy, added))) {
      return 'the same key is listed with another notBefore or notAfter: remove one of the two';
    }
    if (copies.some(({ key }) => key.kid === added.key.kid)) return undefined;
    const { kid } = added.key;
    if (kid !== undefined && this.entries.some(({ key }) => key.kid === kid)) {
      return 'another key of the issuer has this kid: give each key its own';
    }
    this.entries.push(added);
    return undefined;
  }
}

function sameWindow({ window: one }: Entry, { window: other }: Entry): boolean {
  return one?.opens === other?.opens && one?.closes === other?.closes;
}
