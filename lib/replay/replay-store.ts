import type { MaybePromise } from '../token/maybe-promise.js';

/** What a receiver wants to remember of one verified event. */
export interface ReplayClaim {
  /**
   * The event's identity: a digest over receiver, issuer and `txn` (else `jti`). At most 64 characters, and
   * nothing of the token can be read from it.
   */
  readonly key: string;
  /** The token's identity: the same digest over `jti`. Equal to `key` when the token has no `txn`. */
  readonly tokenKey: string;
  /** Stands for event name and payload, in at most 64 characters: the same id with another one is an attack or a sender's bug. */
  readonly fingerprint: string;
  /** Until then (`exp` + tolerance, epoch milliseconds) an entry is never dropped: the token would still verify. */
  readonly replayUntil: number;
  /** Until then (epoch milliseconds, the sender's retry horizon) it is kept as far as the bound allows. */
  readonly keepUntil: number;
  /** Milliseconds after which a reservation frees itself unless it is extended: its holder has crashed. */
  readonly lease: number;
  /** The issuer, for a store that bounds each one. */
  readonly issuer: string;
}

/** Proof of a reservation; a holder whose lease has passed to somebody else can change nothing with it. */
export interface ReplayReservation {
  readonly claim: ReplayClaim;
  /** Unguessable, one per reservation: fences a stale holder. */
  readonly owner: string;
}

/** What {@link ReplayStore.reserve} found. */
export type ReplayVerdict =
  /** First seen, or its last handler failed: handle it, then commit or release. */
  | { readonly status: 'reserved'; readonly reservation: ReplayReservation }
  /** Somebody is handling it now; the lease may end at `retryAt` (epoch milliseconds). */
  | { readonly status: 'in-progress'; readonly retryAt: number }
  /** Handled before, with the same content. */
  | { readonly status: 'done' }
  /** Seen before with other content, or the token's id was used for another event. */
  | { readonly status: 'conflict' };

/**
 * Remembers which events were handled, so that a copy is answered without being handled again.
 *
 * An entry goes `reserved → done`, or `reserved → gone` when the handler failed. Of any number of
 * concurrent `reserve` calls with one key, over all processes that share the store, exactly one gets
 * `reserved`. Both keys are taken in one atomic step. `commit` and `release` answer whether the
 * reservation was still the caller's.
 *
 * A copy of a known event may bring a token of its own, which expires later. With every `in-progress` and `done`
 * the entry's `replayUntil` and `keepUntil` therefore rise to the claim's where those are later, and a later
 * `commit` does not take them back: an entry dropped at the times of the first token would let the copy's
 * token through as a new event. A conflict changes nothing.
 *
 * A store in memory may answer at once, without a promise. Every implementation must pass the contract suite of `nestjs-webhook-token/testing`.
 *
 * A store that is full or cannot be reached throws {@link WebhookStoreError}; receivers then answer 503
 * and nothing is handled unchecked.
 */
export abstract class ReplayStore {
  /** How many processes one instance protects; a receiver says so at start-up when it is one. */
  abstract readonly scope: 'process' | 'shared';

  /**
   * Checks at start-up that the store can be used: by default, it extends a reservation that does not exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    const key = 'start-up check';
    const none = { lease: 1, replayUntil: 0, keepUntil: 0 };
    const claim = { key, tokenKey: key, fingerprint: key, issuer: key, ...none };
    await this.extend({ claim, owner: key });
  }

  /** Takes the event for handling, unless it is being or has been handled. */
  abstract reserve(claim: ReplayClaim): MaybePromise<ReplayVerdict>;

  /** Moves the end of the lease to `lease` milliseconds from now; `false` when it was lost. */
  abstract extend(reservation: ReplayReservation): MaybePromise<boolean>;

  /** Records the event as handled; `false` when the lease was lost. */
  abstract commit(reservation: ReplayReservation): MaybePromise<boolean>;

  /**
   * As `commit`, within a transaction of the handler's: on record if, and only if, the transaction commits, so that the
   * handler has its effect exactly once. Only a store that lies in the database of the handlers can have it;
   * `event.commit(tx)` refuses where it is absent.
   *
   * Until the transaction ends, a `reserve` or `release` of the same event may wait for it, but no longer than the
   * store waits for anything. A `release` that comes after the commit finds the event done, and leaves it.
   *
   * @param tx - whatever the handler's database library calls a transaction
   * @returns `false` when the lease was lost; the caller rolls back
   */
  commitWith?(tx: unknown, reservation: ReplayReservation): Promise<boolean>;

  /** Forgets the event, so that it can be sent again; `false` when the lease was lost. */
  abstract release(reservation: ReplayReservation): MaybePromise<boolean>;
}
