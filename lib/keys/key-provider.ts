import type { Duration } from '../clock/duration.js';

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
   * new ones are loaded in the background; after that, requests wait for the new ones.
   */
  readonly ttl: Duration = '5m';

  /** How long loaded keys are used if loading fails, as milliseconds or a string; at least `ttl`. */
  readonly maxStale: Duration = '24h';

  readonly #reloads = new Set<() => Promise<void>>();

  /**
   * Loads all keys. Keys that are missing from the result are no longer trusted.
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
