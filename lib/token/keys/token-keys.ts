import { Buffer } from 'node:buffer';
import {
  createHash,
  createHmac,
  createPublicKey,
  createSecretKey,
  type KeyObject,
  timingSafeEqual,
} from 'node:crypto';
import type { JWSHeaderParameters } from 'jose';
import { type CompactToken, decodeBase64url, encodeBase64urlText } from '../decoding.js';
import { MAX_KEYS_TRIED, type SignatureAlgorithm } from '../webhook-token.constants.js';
import type { WindowedKey } from './key-material.js';

/** A parsed key for signing, bound to one algorithm. */
export interface SigningKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  /** Maximum bytes of inline data; absent for a key in this process. */
  readonly inlineLimit?: number;
  /** The public key; absent for HMAC, and if a signer does not provide it. */
  publicKey?(): KeyObject | undefined;
  /**
   * @param header - the header as JSON
   * @param claims - the claims as JSON
   * @returns the compact token
   */
  sign(header: string, claims: string): string | Promise<string>;
}

/** A parsed key for verifying, bound to one algorithm. */
export interface VerificationKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  /** Whether this key signed the token; never throws or rejects for a wrong signature. */
  verify(token: CompactToken): boolean | Promise<boolean>;
}

/** HMAC algorithms with their digests and the minimum bytes of their secrets (RFC 7518, section 3.2). */
export const HMAC_ALGORITHMS = {
  HS256: { hash: 'sha256', secretBytes: 32 },
  HS384: { hash: 'sha384', secretBytes: 48 },
  HS512: { hash: 'sha512', secretBytes: 64 },
} as const;

export type HmacAlgorithm = keyof typeof HMAC_ALGORITHMS;

/** Reports whether keys of an algorithm are shared secrets. */
export function isHmac(alg: string): alg is HmacAlgorithm {
  return Object.hasOwn(HMAC_ALGORITHMS, alg);
}

/**
 * A shared secret. It uses the synchronous HMAC of node:crypto, which takes a fraction of the time of a promise-based one
 * (benchmark `token`) and does not wait for the thread pool. A KeyObject is imported once, a Buffer at every call.
 */
export class HmacKey implements SigningKey, VerificationKey {
  constructor(
    readonly alg: HmacAlgorithm,
    private readonly secret: KeyObject,
    readonly kid: string | undefined,
  ) {}

  sign(header: string, claims: string): string {
    const input = `${encodeBase64urlText(header)}.${encodeBase64urlText(claims)}`;
    return `${input}.${this.mac(input)}`;
  }

  verify({ signingInput, signature }: CompactToken): boolean {
    // Compares base64url, not bytes, so a non-canonical encoding of the MAC fails.
    const expected = Buffer.from(this.mac(signingInput));
    const actual = Buffer.from(signature);
    return expected.length === actual.length && timingSafeEqual(expected, actual);
  }

  /**
   * Reports whether a token was signed with another form of this secret, to explain a refusal.
   *
   * @param change - returns the other form; its argument and its result are overwritten afterwards
   */
  verifiesUnder(token: CompactToken, change: (secret: Buffer) => Buffer | undefined): boolean {
    const secret = this.secret.export();
    const changed = change(secret);
    try {
      if (changed === undefined || changed.length === 0) return false;
      return new HmacKey(this.alg, createSecretKey(changed), this.kid).verify(token);
    } finally {
      changed?.fill(0);
      secret.fill(0);
    }
  }

  /** Whether both have the same secret, regardless of algorithm and kid. */
  holdsSame(other: VerificationKey): boolean {
    return other instanceof HmacKey && this.secret.equals(other.secret);
  }

  /** The SHA-256 digest of the secret. */
  get fingerprint(): string {
    const secret = this.secret.export();
    try {
      return createHash('sha256').update(secret).digest('base64url');
    } finally {
      secret.fill(0);
    }
  }

  private mac(input: string): string {
    return createHmac(HMAC_ALGORITHMS[this.alg].hash, this.secret)
      .update(input)
      .digest('base64url');
  }
}

let jose: Promise<typeof import('jose')> | undefined;

/** Loads jose for the first token of a key pair: it is a sixth of the start-up cost, and secrets do not need it. */
function loadJose(): Promise<typeof import('jose')> {
  jose ??= import('jose');
  return jose;
}

/** One half of a key pair. It uses jose, which signs and verifies off the event loop. */
export class JoseKey implements SigningKey, VerificationKey {
  constructor(
    readonly alg: SignatureAlgorithm,
    private readonly key: KeyObject,
    readonly kid: string | undefined,
  ) {}

  publicKey(): KeyObject {
    return this.key.type === 'private' ? createPublicKey(this.key) : this.key;
  }

  async sign(header: string, claims: string): Promise<string> {
    const { FlattenedSign } = await loadJose();
    const jws = await new FlattenedSign(Buffer.from(claims))
      .setProtectedHeader(JSON.parse(header) as JWSHeaderParameters)
      .sign(this.key);
    return `${jws.protected}.${jws.payload}.${jws.signature}`;
  }

  async verify(token: CompactToken): Promise<boolean> {
    // jose also accepts non-canonical base64url.
    if (decodeBase64url(token.signature) === undefined) return false;
    const { flattenedVerify } = await loadJose();
    try {
      await flattenedVerify(
        { protected: token.header, payload: token.payload, signature: token.signature },
        this.key,
        { algorithms: [this.alg] },
      );
      return true;
    } catch {
      return false;
    }
  }

  /** Whether both have the same key, regardless of algorithm and kid. */
  holdsSame(other: VerificationKey): boolean {
    return other instanceof JoseKey && this.key.equals(other.key);
  }
}

export interface IssuerKeys {
  readonly issuer: string;
  /**
   * The keys that may have signed a token: those with its `kid` and those without one.
   *
   * @param kid - from the token's header, unauthenticated
   * @param now - seconds since the epoch
   * @param alg - from the token's header; lets keys be loaded only for a token that they could have signed
   * @returns a promise only if the keys must be loaded
   */
  candidates(
    kid: string | undefined,
    now: number,
    alg?: string,
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
  /** Whether its tokens can be verified without a promise. */
  readonly hasOnlySecrets: boolean;

  constructor(private readonly issuers: ReadonlyMap<string, IssuerKeys>) {
    this.sole = issuers.size === 1 ? issuers.values().next().value : undefined;
    this.hasOnlySecrets = [...issuers.values()].every(
      (one) =>
        one instanceof StaticIssuerKeys && one.known().every((key) => key instanceof HmacKey),
    );
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

  /** The issuers of each secret that several issuers have, so that each could sign in the name of the others. */
  sharingSecrets(): string[][] {
    const owners = new Map<string, string[]>();
    for (const keys of this.issuers.values()) {
      for (const key of keys.known?.() ?? []) {
        if (!(key instanceof HmacKey)) continue;
        const { fingerprint } = key;
        const sharing = owners.get(fingerprint) ?? [];
        owners.set(fingerprint, sharing);
        // An issuer may have one secret under several kids.
        if (sharing.at(-1) !== keys.issuer) sharing.push(keys.issuer);
      }
    }
    return [...owners.values()].filter(({ length }) => length > 1);
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
