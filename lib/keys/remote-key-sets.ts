import type { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError, WebhookStoreError } from '../errors/webhook.error.js';
import type { MoreKeys } from '../token/keys/trusted-issuers.js';
import {
  isHmac,
  type IssuerKeys,
  type StaticIssuerKeys,
  type VerificationKey,
} from '../token/keys/token-keys.js';
import { keyThatSigned } from '../token/token-verifier.js';
import { createKeySetClient, type FetchJson, KeySet } from './key-set.js';
import type { ResolvedJwksOptions } from './jwks-options.js';
import { OutageLog, type KeyLog } from './key-log.js';
import type { WebhookIssuer } from './issuer-list.js';

/** The key sets of a list of issuers that is being parsed. */
interface KeySetDraft {
  readonly moreKeys: MoreKeys;
  /** Called once the list is valid: sets that it does not contain are dropped. */
  adopt(): void;
}

/**
 * The remote key sets of a receiver, by address. Issuers with the same address share one set, and a new list of issuers
 * reuses the sets of the last one.
 */
export class RemoteKeySets {
  private sets = new Map<string, RemoteKeySet>();
  private readonly fetch: FetchJson;

  constructor(
    private readonly options: ResolvedJwksOptions,
    private readonly clock: WebhookClock,
    private readonly log: KeyLog,
  ) {
    this.fetch = createKeySetClient(options);
  }

  check(): readonly KeySetStatus[] {
    return [...this.sets.values()].map((set) => set.check());
  }

  /** Starts a new list of issuers, in which each `jwksUri` gets its set. */
  startList(): KeySetDraft {
    const named = new Map<string, RemoteKeySet>();
    return {
      moreKeys: (entry, configured, problem) => {
        const { jwksUri } = entry as WebhookIssuer;
        if (jwksUri === undefined) return undefined;
        const url = this.checkedUrl(jwksUri, (message) => problem('.jwksUri', message));
        if (url === undefined) return configured ?? NO_KEYS;
        const set = named.get(url.href) ?? this.sets.get(url.href) ?? this.setAt(url);
        named.set(url.href, set);
        return new RemoteIssuerKeys(entry.issuer, configured, set);
      },
      adopt: () => void (this.sets = named),
    };
  }

  private checkedUrl(uri: unknown, problem: (message: string) => void): URL | undefined {
    if (typeof uri !== 'string') {
      problem('must be a string: the https: URL of the JSON Web Key Set');
      return undefined;
    }
    if (!this.options.allowHttp && /^\s*http:/i.test(uri)) {
      problem(
        'must be an https: URL: over plain http:, anyone on the network path can insert their own key. For a test, set jwksFetch.allowHttp',
      );
      return undefined;
    }
    try {
      return this.options.policy.checkUrl(uri);
    } catch (error) {
      if (!isWebhookError(error)) throw error;
      problem(error.message);
      return undefined;
    }
  }

  private setAt(url: URL): RemoteKeySet {
    return new RemoteKeySet(url, {
      ...this.options,
      fetch: this.fetch,
      clock: this.clock,
      log: this.log,
      outage: new OutageLog(`The keys at ${url.host}`, this.log),
    });
  }
}

/** The keys of an invalid entry, so that it is not also reported as an entry without keys. */
const NO_KEYS: IssuerKeys = { issuer: '', candidates: () => [] };

/** The keys of an issuer with a `jwksUri`, and those in its entry. */
class RemoteIssuerKeys implements IssuerKeys {
  constructor(
    readonly issuer: string,
    private readonly configured: StaticIssuerKeys | undefined,
    private readonly set: RemoteKeySet,
  ) {}

  async candidates(
    kid: string | undefined,
    now: number,
    alg = '',
  ): Promise<readonly VerificationKey[]> {
    const configured = this.configured?.candidates(kid, now) ?? [];
    const fitting = configured.find((key) => key.alg === alg);
    if (fitting === undefined) return this.set.candidates(kid);
    // A key set has no secrets.
    if (isHmac(alg)) return configured;
    // The set is needed only if no key in the entry signed the token.
    const verify: VerificationKey['verify'] = async (token) => {
      const published = (await this.set.candidates(kid)).filter((key) => key.alg === alg);
      return (await keyThatSigned(token, published)) !== undefined;
    };
    return [...configured, { alg: fitting.alg, kid, verify }];
  }

  known(): readonly VerificationKey[] {
    return [...(this.configured?.known() ?? []), ...this.set.known()];
  }
}

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
  /** Milliseconds since it was fetched, or if it never was, since the first failure; `undefined` if it has not been needed. */
  readonly ageMs: number | undefined;
  readonly isFailing: boolean;
}

/**
 * The key set at an address, and the decision when to fetch it.
 *
 * Unlike the remote key set of jose, it counts the cooldown from the last attempt, so that unknown names cause no
 * stream of requests while the issuer is down, and it keeps serving a set that cannot be read again.
 */
class RemoteKeySet {
  private set: KeySet | undefined;
  private fetchedAt = -Infinity;
  private attemptedAt = -Infinity;
  private failedAt = -Infinity;
  /** The first failure since the last fetch that succeeded. */
  private failingSince = Infinity;
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
    return this.lookUp(kid);
  }

  /**
   * Checks how old the set is, and whether the last attempt to fetch it failed. Then the next one starts in the background, at most
   * once per cooldown: only webhooks would start it otherwise, and a process that is not ready receives none.
   */
  check(): KeySetStatus {
    const isFailing = this.failingSince < Infinity;
    if (isFailing && this.mayFetch()) void this.fetchOnce();
    const since = this.set === undefined ? this.failingSince : this.fetchedAt;
    return {
      host: this.url.host,
      ageMs: since === Infinity ? undefined : this.since(since),
      isFailing,
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
      this.failingSince = Infinity;
      outage.ended();
      this.logOnce(notices);
    } catch (error) {
      this.failedAt = startedAt;
      // The clock may have been set back.
      this.failingSince = Math.min(this.failingSince, startedAt);
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
