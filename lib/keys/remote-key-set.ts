import { createRemoteJWKSet, customFetch, type FetchImplementation } from 'jose';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { VerificationKey } from '../token/keys/token-key.js';
import { unreadable } from './jwks-fetch.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { KeySet } from './key-set.js';
import { reasonOf, type KeyLog, type TroubleLog } from './trouble-log.js';

export interface RemoteKeySetOptions extends ResolvedJwksOptions {
  readonly fetch: FetchImplementation;
  readonly clock: WebhookClock;
  readonly trouble: TroubleLog;
  readonly log: KeyLog;
}

/**
 * A key set at an address, and when to read it.
 *
 * jose fetches it, one fetch at a time. When it does is decided here: jose counts its cooldown from the last
 * success only, so that names nobody knows would have it fetch without end while the issuer is down, and it serves
 * no key of a set that could not be renewed.
 */
export class RemoteKeySet {
  private readonly remote: ReturnType<typeof createRemoteJWKSet>;
  private set: KeySet | undefined;
  private readAt = -Infinity;
  private attemptedAt = -Infinity;
  private failedAt = -Infinity;
  private reading: Promise<void> | undefined;
  private readonly told = new Set<string>();

  constructor(
    private readonly url: URL,
    private readonly options: RemoteKeySetOptions,
  ) {
    const { fetch, timeout } = options;
    this.remote = createRemoteJWKSet(url, { [customFetch]: fetch, timeoutDuration: timeout });
  }

  /**
   * The keys a name stands for.
   *
   * @returns at once for a key that is known, unless the set has not been read for twice its `maxAge`
   * @throws {@link WebhookStoreError} `keys_unavailable` where it cannot be told whether there is such a key
   */
  candidates(kid: string | undefined): MaybePromise<readonly VerificationKey[]> {
    const known = this.usable()?.candidates(kid) ?? [];
    if (known.length === 0) return this.lookAnew(kid);
    const age = this.since(this.readAt);
    if (age <= this.options.maxAge || !this.mayRead()) return known;
    const reading = this.read();
    // While an issuer is down, nobody who needs a known key waits for it.
    const down = this.since(this.failedAt) <= this.options.maxAge;
    if (down || age <= 2 * this.options.maxAge) return known;
    return reading.then(() => this.usable()?.candidates(kid) ?? []);
  }

  /** Every key that is relied on now, without a look at the address. */
  known(): readonly VerificationKey[] {
    return this.usable()?.known() ?? [];
  }

  /** A name nobody knows: one look at the set is due, if the last one was long enough ago. */
  private lookAnew(kid: string | undefined): MaybePromise<readonly VerificationKey[]> {
    return this.mayRead() ? this.read().then(() => this.answer(kid)) : this.answer(kid);
  }

  /** What can be said of a name now that the set was looked at. */
  private answer(kid: string | undefined): readonly VerificationKey[] {
    const set = this.usable();
    if (set !== undefined && this.failedAt < this.attemptedAt) return set.candidates(kid);
    const known = set?.candidates(kid) ?? [];
    if (known.length > 0) return known;
    throw new WebhookStoreError(
      'keys_unavailable',
      'the keys of the issuer cannot be read now: try again later',
    );
  }

  private usable(): KeySet | undefined {
    return this.since(this.readAt) <= this.options.maxStale ? this.set : undefined;
  }

  /** Whether a reading is due, or going on and to be waited for. */
  private mayRead(): boolean {
    return this.reading !== undefined || this.since(this.attemptedAt) >= this.options.cooldown;
  }

  /** Milliseconds; a time in the future, after the clock was set back, is long ago. */
  private since(time: number): number {
    const passed = this.options.clock.now() - time;
    return passed >= 0 ? passed : Infinity;
  }

  /** Reads the set, one reading for all; never rejects. */
  private read(): Promise<void> {
    this.reading ??= this.readSet().finally(() => (this.reading = undefined));
    return this.reading;
  }

  private async readSet(): Promise<void> {
    const { clock, trouble } = this.options;
    const began = clock.now();
    this.attemptedAt = began;
    try {
      await this.remote.reload();
      const { set, notices } = KeySet.read(this.remote.jwks()!);
      this.set = set;
      this.readAt = began;
      this.failedAt = -Infinity;
      trouble.ended();
      this.tell(notices);
    } catch (error) {
      this.failedAt = began;
      trouble.trouble(unreadable(faultOf(error)));
    }
  }

  private tell(notices: readonly string[]): void {
    for (const notice of notices) {
      if (this.told.has(notice)) continue;
      // The owner of the set decides what it says, so what was told is forgotten before it grows.
      if (this.told.size >= MAX_TOLD) this.told.clear();
      this.told.add(notice);
      this.options.log('warn', `The key set at ${this.url.host}: ${notice}`);
    }
  }
}

const MAX_TOLD = 200;

/** jose tells its two findings apart by code. */
function faultOf(error: unknown): string {
  switch ((error as { code?: unknown }).code) {
    case 'ERR_JWKS_INVALID':
      return 'the answer is JSON, and no key set: it has no list "keys" of objects';
    case 'ERR_JOSE_GENERIC':
      return 'the answer is not JSON';
    default:
      return reasonOf(error);
  }
}
