import { MAX_KEYS_TRIED } from '../webhook-token.constants.js';
import type { WindowedKey } from './key-material.js';
import type { VerificationKey } from './token-keys.js';

/** The keys of one issuer. */
export interface IssuerKeys {
  readonly issuer: string;
  /**
   * The keys that may have signed a token: those with its `kid` and those without one.
   *
   * @param kid - from the token's header, unauthenticated
   * @param now - seconds since the epoch
   * @returns a promise only if the keys must be loaded
   */
  candidates(
    kid: string | undefined,
    now: number,
  ): readonly VerificationKey[] | Promise<readonly VerificationKey[]>;
  /** All keys in memory, if the source can list them; used only to explain refusals. */
  known?(): readonly VerificationKey[];
}

/** The issuers that are trusted at one time. A lookup takes the same time for one and for ten thousand. */
export interface TrustedIssuers {
  /** The issuer, if there is exactly one. */
  readonly sole: IssuerKeys | undefined;
  /** @returns `undefined` for an issuer that is not trusted */
  of(issuer: string): IssuerKeys | undefined;
  /** All issuers, if the source can list them; used only to explain refusals. */
  all?(): Iterable<IssuerKeys>;
}

/** The source of a verifier's keys, which may change while it is in use. */
export interface KeySource {
  /** @returns a promise only if the last known issuers are too old to be used */
  ring(): TrustedIssuers | Promise<TrustedIssuers>;
  /** The last known issuers, if they can change; a change is a new object. */
  latest?(): TrustedIssuers | undefined;
}

/** Issuers and keys that do not change. */
export class KeyRing implements KeySource, TrustedIssuers {
  readonly sole: IssuerKeys | undefined;

  constructor(private readonly issuers: ReadonlyMap<string, IssuerKeys>) {
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
    this.keys = [...keys.filter(isNamed), ...keys.filter((one) => !isNamed(one))];
  }

  /** For a token without `kid`: all keys, unless they are more than {@link MAX_KEYS_TRIED}. Keys outside their windows are left out. */
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
    const unnamed = this.keys.filter((one) => !isNamed(one));
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

function isNamed({ key }: WindowedKey<VerificationKey>): boolean {
  return key.kid !== undefined;
}
