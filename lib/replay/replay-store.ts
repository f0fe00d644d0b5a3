/** What a receiver stores of a verified event. */
export interface ReplayClaim {
  /**
   * The event's identity: a digest over receiver, issuer and `txn` (else `jti`). At most 64 characters; it reveals nothing of the
   * token.
   */
  readonly key: string;
  /** The token's identity: the same digest over `jti`. Equal to `key` if the token has no `txn`. */
  readonly tokenKey: string;
  /** Identifies event name and payload, in at most 64 characters: the same id with another fingerprint is an attack or a sender's bug. */
  readonly fingerprint: string;
  /**
   * `exp` + twice the tolerance, epoch milliseconds. Until then an entry is never dropped, since the token would still verify, at the
   * latest at a receiver whose clock is behind by the tolerance.
   */
  readonly replayUntil: number;
  /** End of the sender's retries, epoch milliseconds. Until then the entry is kept, if the store has space. */
  readonly keepUntil: number;
  /** Milliseconds after which a reservation expires unless it is extended, because its owner crashed. */
  readonly lease: number;
  /** The issuer, for a store with a limit per issuer. */
  readonly issuer: string;
}

/** Proof of a reservation. It has no effect after another owner has taken the lease over. */
export interface ReplayReservation {
  readonly claim: ReplayClaim;
  /** Unguessable and unique to the reservation: a fencing token. */
  readonly owner: string;
}

/** The result of {@link ReplayStore.reserve}. */
export type ReplayVerdict =
  /** New, or its last handler failed: handle it, then commit or release. */
  | { readonly status: 'reserved'; readonly reservation: ReplayReservation }
  /** It is being handled; the lease may end at `retryAt` (epoch milliseconds). */
  | { readonly status: 'in-progress'; readonly retryAt: number }
  /** Handled before, with the same content. */
  | { readonly status: 'done' }
  /** Known with other content, or the token's id was used for another event. */
  | { readonly status: 'conflict' };

/**
 * Stores which events were handled, so that a copy is acknowledged without being handled again.
 *
 * - **Atomic.** An entry goes `reserved → done`, or `reserved → gone` if the handler failed. Of any number of concurrent `reserve` calls
 *   with one key, over all processes that share the store, exactly one gets `reserved`. Both keys are taken in one step.
 * - **Fenced.** `extend`, `commit` and `release` return whether the reservation was still the caller's.
 * - **Kept long enough.** A copy may have a token of its own that expires later. With every `in-progress` and `done`, the entry's
 *   `replayUntil` and `keepUntil` therefore rise to those of the claim, and `commit` does not lower them: otherwise the copy's token
 *   could be replayed as a new event. A conflict changes nothing.
 * - **Fail closed.** A store that is full or unreachable throws {@link WebhookStoreError}; receivers then answer 503.
 * - **In time.** Receivers wait 9 s for `reserve`, 9 s for all attempts to `commit`, and 2 s for `release`. A later result is ignored, so set
 *   a shorter timeout for the connection.
 *
 * Every implementation must pass the contract suite of
 * `nestjs-webhook-token/testing`.
 */
export abstract class ReplayStore {
  /** Whether it protects one process only; then a receiver warns at start-up. */
  abstract readonly scope: 'process' | 'shared';

  /**
   * Checks, at start-up and for the health indicator, that the store can be used: by default, it extends a reservation that does not
   * exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    const key = 'start-up check';
    const none = { lease: 1, replayUntil: 0, keepUntil: 0 };
    const claim = { key, tokenKey: key, fingerprint: key, issuer: key, ...none };
    await this.extend({ claim, owner: key });
  }

  /** Reserves the event for handling, unless it is being handled or was handled before. */
  abstract reserve(claim: ReplayClaim): Promise<ReplayVerdict>;

  /** Moves the end of the lease to `lease` milliseconds from now; `false` if the lease was lost. */
  abstract extend(reservation: ReplayReservation): Promise<boolean>;

  /** Records the event as handled; `false` if the lease was lost. */
  abstract commit(reservation: ReplayReservation): Promise<boolean>;

  /**
   * As `commit`, within the handler's own transaction: the record exists if, and only if, the transaction commits, so that the handler
   * has its effect exactly once. Only a store in the handlers' database can implement it; without it, `event.commit(tx)` throws.
   *
   * Until the transaction ends, a `reserve` or `release` of the same event may wait for it, up to the store's timeout. A `release`
   * after the commit does not change the event.
   *
   * @param tx - the transaction of the handler's database library
   * @returns `false` if the lease was lost; the caller rolls back
   */
  commitWith?(tx: unknown, reservation: ReplayReservation): Promise<boolean>;

  /** Removes the event, so that it can be sent again; `false` if the lease was lost. */
  abstract release(reservation: ReplayReservation): Promise<boolean>;
}
