import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import type { VerificationKey } from '../token/keys/token-key.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import type { KeyLog, OutageLog } from './key-log.js';
import type { FetchJson } from './key-set-client.js';
import { KeySet } from './key-set.js';

/** Warnings about one set that are logged once each. */
const MAX_LOGGED = 200;

interface RemoteKeySetOptions extends ResolvedJwksOptions {
  readonly fetch: FetchJson;
  readonly clock: WebhookClock;
  readonly outage: OutageLog;
  readonly log: KeyLog;
}

/** The state of a key set, without its address. */
export interface KeySetStatus {
  readonly host: string;
  /** Milliseconds since it was fetched; `undefined` if it has not been needed, or could not be fetched. */
  readonly ageMs: number | undefined;
  readonly isFailing: boolean;
}

/**
 * The key set at an address, and the decision when to fetch it.
 *
 * Unlike the remote key set of jose, it counts the cooldown from the last attempt, so that unknown names cause no
 * stream of requests while the issuer is down, and it keeps serving a set that cannot be read again.
 */
export class RemoteKeySet {
  private set: KeySet | undefined;
  private fetchedAt = -Infinity;
  private attemptedAt = -Infinity;
  private failedAt = -Infinity;
  private fetching: Promise<void> | undefined;
  private readonly logged = new Set<string>();

  constructor(
    private readonly url: URL,
    private readonly options: RemoteKeySetOptions,
  ) {}

  /**
   * The keys that may have signed a token.
   *
   * A known key needs no fetch, unless the set is older than twice its `maxAge`.
   *
   * @throws {@link WebhookStoreError} `keys_unavailable` if the kid is unknown and the set cannot be fetched
   */
  async candidates(kid: string | undefined): Promise<readonly VerificationKey[]> {
    const known = this.usable()?.candidates(kid) ?? [];
    if (known.length === 0) return this.refetch(kid);
    const age = this.since(this.fetchedAt);
    if (age <= this.options.maxAge || !this.mayFetch()) return known;
    const fetched = this.fetchOnce();
    // During an outage, tokens with a known key do not wait.
    const down = this.since(this.failedAt) <= this.options.maxAge;
    if (down || age <= 2 * this.options.maxAge) return known;
    await fetched;
    return this.usable()?.candidates(kid) ?? [];
  }

  /** How old the set is, and whether the last attempt to fetch it failed. */
  status(): KeySetStatus {
    const age = this.since(this.fetchedAt);
    return {
      host: this.url.host,
      ageMs: this.set === undefined ? undefined : age,
      isFailing: this.failedAt > -Infinity,
    };
  }

  /** All keys that are still usable, without a fetch. */
  known(): readonly VerificationKey[] {
    return this.usable()?.known() ?? [];
  }

  /** Fetches the set for an unknown kid, unless the last attempt was within the cooldown. */
  private async refetch(kid: string | undefined): Promise<readonly VerificationKey[]> {
    if (this.mayFetch()) await this.fetchOnce();
    return this.lookUp(kid);
  }

  /** The keys for a kid after the last attempt to fetch the set. */
  private lookUp(kid: string | undefined): readonly VerificationKey[] {
    const set = this.usable();
    if (set !== undefined && this.failedAt < this.attemptedAt) return set.candidates(kid);
    const known = set?.candidates(kid) ?? [];
    if (known.length > 0) return known;
    throw new WebhookStoreError(
      'keys_unavailable',
      'the keys of the issuer are not available: try again later',
    );
  }

  private usable(): KeySet | undefined {
    return this.since(this.fetchedAt) <= this.options.maxStale ? this.set : undefined;
  }

  /** Whether a fetch is allowed now, or is running already. */
  private mayFetch(): boolean {
    return this.fetching !== undefined || this.since(this.attemptedAt) >= this.options.cooldown;
  }

  /** Milliseconds since a time; Infinity if it is in the future because the clock was set back. */
  private since(time: number): number {
    const passed = this.options.clock.now() - time;
    return passed >= 0 ? passed : Infinity;
  }

  /** Fetches the set; concurrent callers share one request. Never rejects. */
  private fetchOnce(): Promise<void> {
    this.fetching ??= this.fetchSet().finally(() => (this.fetching = undefined));
    return this.fetching;
  }

  private async fetchSet(): Promise<void> {
    const { clock, fetch, outage } = this.options;
    const startedAt = clock.now();
    this.attemptedAt = startedAt;
    try {
      const { set, notices } = KeySet.read(await fetch(this.url));
      this.set = set;
      this.fetchedAt = startedAt;
      this.failedAt = -Infinity;
      outage.ended();
      this.logOnce(notices);
    } catch (error) {
      this.failedAt = startedAt;
      outage.failed(error);
    }
  }

  private logOnce(notices: readonly string[]): void {
    for (const notice of notices) {
      if (this.logged.has(notice)) continue;
      // The owner of the set decides its contents, so this memory is bounded.
      if (this.logged.size >= MAX_LOGGED) this.logged.clear();
      this.logged.add(notice);
      this.options.log('warn', `The key set at ${this.url.host}: ${notice}`);
    }
  }
}
