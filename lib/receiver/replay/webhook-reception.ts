import { WebhookReplayError } from '../../errors/webhook.error.js';
import type { ReplayReservation, ReplayStore } from '../../replay/replay-store.js';
import { rescued, type MaybePromise } from '../../token/maybe-promise.js';
import type { RequestBody } from '../../request/request-body.js';
import { keepingOf, type WebhookEvent, type EventCommitter } from '../webhook-event.js';
import type { LeaseKeeper } from './lease-keeper.js';

/**
 * A verified event with its place in the replay store: whoever handles it completes or fails it, once.
 */
export class WebhookReception implements EventCommitter {
  private open: boolean;
  private handling = false;
  private failed = false;
  /** Whether the handler has put the record into its own transaction. */
  private joined = false;
  private lost: WebhookReplayError | undefined;

  constructor(
    readonly event: WebhookEvent,
    /** Absent for an event that was handled before. */
    private readonly reservation: ReplayReservation | undefined,
    private readonly store: ReplayStore,
    private readonly leases: LeaseKeeper,
    private readonly body: RequestBody,
  ) {
    this.open = reservation !== undefined;
    if (reservation === undefined) return;
    leases.hold(reservation);
    keepingOf(event).committer = this;
  }

  /** What the event is known by, over all its copies. */
  get identity(): string {
    return this.reservation!.claim.key;
  }

  /** Whether the event was handled before, so that it is only acknowledged. */
  get duplicate(): boolean {
    return this.reservation === undefined;
  }

  /** Whether nobody has said yet how the handling ended. */
  get unsettled(): boolean {
    return this.open;
  }

  /** Whether a handler is at work, which will say itself how it ended. */
  get running(): boolean {
    return this.handling;
  }

  /** Whether it was the handler that failed, and nothing before it. */
  get handlerFailed(): boolean {
    return this.failed;
  }

  /** Whether the handler has put the record into its transaction; how that ended, the store knows. */
  get committed(): boolean {
    return this.joined;
  }

  /** What the handler was told when it could not commit the event, which was no longer its own. */
  get leaseLost(): WebhookReplayError | undefined {
    return this.lost;
  }

  /**
   * Refuses a handler that was told so and went on as if nothing were the matter: it may have rolled back, and nobody will
   * send the event again once it is acknowledged.
   *
   * @throws {@link WebhookReplayError} `lease_lost`
   */
  requireLease(): void {
    if (this.lost !== undefined) throw this.lost;
  }

  /** Says that a handler begins: from now on nobody else settles the event. */
  begin(): void {
    this.handling = true;
  }

  /** Says that the handler failed. */
  failHandler(): MaybePromise<boolean> {
    this.failed = true;
    return this.fail();
  }

  /**
   * Leaves the event to its lease: whoever handles it cannot be asked any more, and may be at it still.
   */
  abandon(): void {
    this.body.remove();
    this.open = false;
    if (this.reservation !== undefined) this.leases.drop(this.reservation);
  }

  /**
   * Records the event as handled, unless the handler has done so itself.
   *
   * @returns whether it is on record. Where it is not, the effect has happened all the same, so the sender
   *   still gets its success: refusing it would only make sure that the event is handled twice.
   */
  complete(): MaybePromise<boolean> {
    return this.settle((reservation) => this.joined || this.store.commit(reservation));
  }

  /**
   * Frees the event, so that it can be sent again. Where the store fails, its lease frees it later.
   *
   * Also after the handler has put the record into its transaction: nobody here knows how that ended, but the
   * store does. It frees what was rolled back, and leaves what was committed.
   */
  fail(): MaybePromise<boolean> {
    return this.settle((reservation) => this.store.release(reservation));
  }

  /**
   * Records the event in the handler's own transaction.
   *
   * @throws {@link WebhookReplayError} `lease_lost`, `unsupported_option`
   */
  async commitIn(tx: unknown): Promise<void> {
    const reservation = this.reservation!;
    if (this.store.commitWith === undefined) {
      throw new WebhookReplayError(
        'unsupported_option',
        "the receiver's replay store cannot join a transaction: set replay.store to a PostgresReplayStore on the database of the transaction",
      );
    }
    if (!this.open) throw leaseLost();
    // From here on the entry is locked until the transaction ends, and an extension would wait for that.
    this.leases.drop(reservation);
    let recorded: boolean;
    try {
      this.joined = true;
      recorded = await this.store.commitWith(tx, reservation);
    } catch (error) {
      this.joined = false;
      if (this.open) this.leases.hold(reservation);
      throw error;
    }
    if (recorded) return;
    this.joined = false;
    this.lost = leaseLost();
    throw this.lost;
  }

  private settle(
    step: (reservation: ReplayReservation) => MaybePromise<boolean>,
  ): MaybePromise<boolean> {
    const { reservation } = this;
    this.body.remove();
    if (!this.open || reservation === undefined) return true;
    this.open = false;
    this.handling = false;
    this.leases.drop(reservation);
    return rescued(
      () => step(reservation),
      () => false,
    );
  }
}

function leaseLost(): WebhookReplayError {
  return new WebhookReplayError(
    'lease_lost',
    'the event is no longer held by this handler, or was recorded before: roll back, the sender comes again',
  );
}
