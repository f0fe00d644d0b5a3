import type { Duration } from '../clock/duration.js';

/**
 * Keys that change while the application runs: in a database, in a vault, in a file.
 *
 * Extend it, and give an instance in place of the list: `issuers: new DatabaseIssuers(db)`. It is asked when the
 * application starts, and again when what it gave has grown old; `refresh()` makes a change hold at once.
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
   * How long an answer is used without asking again, as milliseconds or text. For as long again it is
   * used while a new one is loaded; after that, whoever needs keys waits for the new one.
   */
  readonly ttl: Duration = '5m';

  /** How long an answer is used while no newer one can be loaded, as milliseconds or text; at least `ttl`. */
  readonly maxStale: Duration = '24h';

  readonly #users = new Set<() => Promise<void>>();

  /**
   * Gives everything that is trusted now. What is not in the answer is trusted no more.
   *
   * A rejection, or an answer with a fault in it, leaves the keys as they are; at start-up it ends the start.
   */
  abstract load(): Keys | Promise<Keys>;

  /**
   * Has everybody who uses this provider load anew: when it resolves, a key that was revoked before the
   * call is accepted no more.
   *
   * @throws what `load` rejected with, or {@link WebhookConfigurationError} with every fault of what it gave;
   *   those who use it then keep the keys they had
   */
  async refresh(): Promise<void> {
    const outcomes = await Promise.allSettled([...this.#users].map((reload) => reload()));
    const failed = outcomes.find(({ status }) => status === 'rejected');
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
  }

  /**
   * Registers somebody who holds what was loaded.
   *
   * @param reload - loads anew, whatever is being loaded already; settles when the outcome is known
   * @internal
   */
  subscribe(reload: () => Promise<void>): void {
    this.#users.add(reload);
  }
}
