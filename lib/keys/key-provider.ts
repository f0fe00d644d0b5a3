import type { Duration } from '../clock/duration.js';
import { inTime, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';
import type { OutageLog } from './key-log.js';

/**
 * Keys that change while the application runs, for example in a database, a vault or a file.
 *
 * Extend it, and pass an instance instead of the list: `issuers: new DatabaseIssuers(db)`. The keys are loaded when the
 * application starts and again when they are older than {@link ttl}; {@link refresh} loads them immediately.
 *
 * ```ts
 * class DatabaseIssuers extends KeyProvider<readonly WebhookIssuer[]> {
 *   load() {
 *     return db.query('select issuer, secret from webhook_issuers');
 *   }
 * }
 * ```
 */
export abstract class KeyProvider<Keys> {
  /**
   * How long loaded keys are used, as milliseconds or a string such as `'5m'`. For the same time again, they are used while
   * new ones are loaded in the background; after that, requests wait for the new ones, unless a load
   * has failed within the last `ttl`, or 20 s if that is longer.
   */
  readonly ttl: Duration = '5m';

  /** How long loaded keys are used if loading fails, as milliseconds or a string; at least `ttl`. */
  readonly maxStale: Duration = '24h';

  readonly #reloads = new Set<() => Promise<void>>();

  /**
   * Loads all keys. Keys that are missing from the result are no longer trusted. An empty list revokes every key; a
   * receiver may also start with one, a publisher may not.
   *
   * If it rejects or returns invalid keys, the last ones stay in use; at start-up, the application fails to start.
   */
  abstract load(): Keys | Promise<Keys>;

  /**
   * Loads the keys again for every receiver or publisher that uses this provider. Once it resolves, a key that was
   * revoked before the call is not accepted any more.
   *
   * @throws the rejection of `load`, or {@link WebhookConfigurationError} with every problem of its result; the last keys
   *   then stay in use
   */
  async refresh(): Promise<void> {
    const outcomes = await Promise.allSettled([...this.#reloads].map((reload) => reload()));
    const failed = outcomes.find(({ status }) => status === 'rejected');
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
  }

  /**
   * Registers a user of the keys.
   *
   * @param reload - loads the keys again, even if a load is running; settles when it has succeeded or failed
   * @hidden
   */
  subscribe(reload: () => Promise<void>): void {
    this.#reloads.add(reload);
  }
}

/** Milliseconds after which a load has failed. */
const LOAD_TIMEOUT = 10_000;
/** Milliseconds after a failure in which no request starts another load. */
const PAUSE_AFTER_FAILURE = 5_000;

interface ProvidedKeysOptions<Keys, Value> {
  readonly provider: KeyProvider<Keys>;
  /** @throws WebhookConfigurationError for invalid keys */
  readonly parse: (keys: Keys) => Value;
  readonly clock: WebhookClock;
  /** The provider's durations in milliseconds. */
  readonly ttl: number;
  readonly maxStale: number;
  readonly outage: OutageLog;
}

/**
 * The last keys of a provider, and the decision when to load them again. It uses no timer: a request that needs keys
 * starts the load, and concurrent ones share it.
 */
export class ProvidedKeys<Keys, Value> {
  private held: { readonly value: Value; readonly since: number } | undefined;
  private loading: Promise<Value> | undefined;
  private failedAt = -Infinity;
  /** Loads are numbered, so that a result that arrives after a newer one is dropped. */
  private started = 0;
  private applied = 0;

  constructor(private readonly options: ProvidedKeysOptions<Keys, Value>) {
    options.provider.subscribe(async () => void (await this.load()));
  }

  /** The last keys, however old; `undefined` before the first load. */
  get latest(): Value | undefined {
    return this.held?.value;
  }

  /**
   * Loads for the first time.
   *
   * @throws the error of the provider or of `parse`
   */
  async start(): Promise<void> {
    await this.load();
  }

  /**
   * The keys to use now.
   *
   * Waits only if the last keys are older than twice the ttl; if a load has failed within the ttl, or 20 s, only if they are
   * older than `maxStale`.
   *
   * @throws {@link WebhookStoreError} `keys_unavailable` if there are no keys younger than `maxStale`
   */
  async current(): Promise<Value> {
    const { held } = this;
    const { ttl, maxStale } = this.options;
    const age = this.age();
    // A negative age means that the clock was set back, so the real age is unknown.
    if (held !== undefined && age >= 0 && age <= ttl) return held.value;
    if (this.failedWithin(PAUSE_AFTER_FAILURE)) return this.lastKeys();
    // If this load fails, a refresh may have succeeded in the meantime.
    const loading = this.loadOnce().catch(() => this.lastKeys());
    // During an outage, requests do not wait for each load, which may hang until its timeout. After a quiet time they do: a key that was
    // revoked meanwhile must not be used.
    const limit = this.failedWithin(Math.max(ttl, 2 * LOAD_TIMEOUT))
      ? maxStale
      : Math.min(2 * ttl, maxStale);
    if (held === undefined || age > limit) return loading;
    loading.catch(() => undefined);
    return held.value;
  }

  /** The last keys, unless they are older than `maxStale`. */
  private lastKeys(): Value {
    if (this.held !== undefined && this.age() <= this.options.maxStale) return this.held.value;
    throw new WebhookStoreError('keys_unavailable', 'the keys are not available: try again later');
  }

  /** Milliseconds. */
  private age(): number {
    return this.held === undefined ? Infinity : this.options.clock.now() - this.held.since;
  }

  /** @param time - milliseconds */
  private failedWithin(time: number): boolean {
    const since = this.options.clock.now() - this.failedAt;
    return since >= 0 && since < time;
  }

  private loadOnce(): Promise<Value> {
    this.loading ??= this.load().finally(() => (this.loading = undefined));
    return this.loading;
  }

  private async load(): Promise<Value> {
    const { provider, parse, clock, outage } = this.options;
    const number = ++this.started;
    const since = clock.now();
    try {
      const loaded = await inTime(clock, LOAD_TIMEOUT, () => provider.load(), tooLong);
      // Do not even parse an outdated list: parsing changes the set of remote key sets.
      if (number < this.applied && this.held !== undefined) return this.held.value;
      const value = parse(loaded);
      this.applied = number;
      // The age counts from the start of the load, since later changes may be missing.
      this.held = { value, since };
      this.failedAt = -Infinity;
      outage.ended();
      return value;
    } catch (error) {
      if (number < this.applied) throw error;
      this.failedAt = clock.now();
      // At start-up and from `refresh`, the error reaches the caller.
      if (this.held !== undefined) outage.failed(error);
      throw error;
    }
  }
}

function tooLong(): WebhookStoreError {
  return new WebhookStoreError(
    'keys_unavailable',
    `load() did not settle within ${LOAD_TIMEOUT} ms`,
  );
}
