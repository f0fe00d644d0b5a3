import type { IssuerKeys } from './key-source.js';
import type { KeyWindow } from './key-window.js';
import type { VerificationKey } from './token-key.js';
import { MAX_KEYS_TRIED } from '../webhook-token.constants.js';

/** A key, and when it holds; without a window, always. */
export interface WindowedKey<Key extends VerificationKey = VerificationKey> {
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
