import { WebhookReplayError, WebhookStoreError } from '../../errors/webhook.error.js';
import type { WebhookClock } from '../../clock/webhook-clock.js';
import type { ReplayReservation, ReplayStore } from '../../replay/replay-store.js';
import { after, rescued, type MaybePromise } from '../../token/maybe-promise.js';
import type { RequestBody } from '../../request/request-body.js';
import { internalsOf, type WebhookEvent } from '../webhook-event.js';
import type { LeaseKeeper } from './lease-keeper.js';

/** Milliseconds for which recording a handled event is retried. Senders usually wait 15 s or longer for an answer. */
const RECORDING_TIME = 10_000;
/** Milliseconds between two attempts; each pause is twice as long as the one before. */
const SHORTEST_PAUSE = 100;
const LONGEST_PAUSE = 1_000;

/** What a reception needs of its receiver. */
interface ReceptionStore {
  readonly replayStore: ReplayStore;
  readonly leases: LeaseKeeper;
  readonly clock: WebhookClock;
}

/**
 * A verified event and its reservation in the replay store. Exactly one of {@link complete}, {@link fail} and {@link abandon}
 * settles it.
 */
export class WebhookReception {
  private state: 'open' | 'recording' | 'settled';
  private handling = false;
  private failed = false;
  private committedByHandler = false;
  private lost: WebhookReplayError | undefined;

  constructor(
    readonly event: WebhookEvent,
    /** Absent for an event that was handled before. */
    private readonly reservation: ReplayReservation | undefined,
    private readonly store: ReceptionStore,
    private readonly body: RequestBody,
  ) {
    this.state = reservation === undefined ? 'settled' : 'open';
    if (reservation === undefined) return;
    store.leases.hold(reservation);
    internalsOf(event).reservation = this;
  }

  /** The key that all copies of the event share. */
  get identity(): string {
    return this.reservation!.claim.key;
  }

  /** Whether the event was handled before, so that it is only acknowledged. */
  get duplicate(): boolean {
    return this.reservation === undefined;
  }

  get unsettled(): boolean {
    return this.state !== 'settled';
  }

  /** Whether a handler is running; its interceptor settles the event when it ends. */
  get running(): boolean {
    return this.handling;
  }

  /** Whether the handler failed, as opposed to something before or after it. */
  get handlerFailed(): boolean {
    return this.failed;
  }

  /** Whether the handler put the record into its own transaction; only the store knows how that ended. */
  get committed(): boolean {
    return this.committedByHandler;
  }

  /** The error that `event.commit(tx)` threw because the lease had ended. */
  get leaseLost(): WebhookReplayError | undefined {
    return this.lost;
  }

  /**
   * Refuses an event whose handler ignored a lost lease: it may have rolled back, and once the event is acknowledged no one sends
   * it again.
   *
   * @throws {@link WebhookReplayError} `lease_lost`
   */
  requireLease(): void {
    if (this.lost !== undefined) throw this.lost;
  }

  /** Marks the start of a handler: until it ends, nothing else settles the event. */
  begin(): void {
    this.handling = true;
  }

  /** As {@link fail}, for an event whose handler failed. */
  failHandler(): MaybePromise<boolean> {
    this.failed = true;
    return this.fail();
  }

  /** Leaves the event to its lease, when it is unknown whether its handler is still running. */
  abandon(): void {
    this.settle();
  }

  /**
   * Records the event as handled, unless the handler did so itself. If the store fails, it is retried for
   * {@link RECORDING_TIME} while the lease is extended.
   *
   * @returns `false` if another process took the event over while it was being handled
   * @throws {@link WebhookStoreError} `store_unavailable` if the event cannot be recorded; {@link fail} then frees it
   */
  complete(): MaybePromise<boolean> {
    const { reservation } = this;
    this.body.remove();
    if (this.state !== 'open' || reservation === undefined) return true;
    if (this.committedByHandler) {
      this.settle();
      return true;
    }
    this.state = 'recording';
    return after(
      rescued(
        () => this.store.replayStore.commit(reservation),
        () => false,
      ),
      (recorded) => {
        if (!recorded) return this.retryRecording(reservation);
        this.settle();
        return true;
      },
    );
  }

  /**
   * Frees the event, so that it can be sent again. If the store fails, the end of the lease frees it.
   *
   * This also applies after the handler put the record into its own transaction: the store frees what was rolled back, and keeps
   * what was committed.
   *
   * @returns whether the event was freed
   */
  fail(): MaybePromise<boolean> {
    const { reservation } = this;
    const isOpen = this.state === 'open';
    this.settle();
    if (!isOpen || reservation === undefined) return true;
    return rescued(
      () => this.store.replayStore.release(reservation),
      () => false,
    );
  }

  /**
   * Records the event in the handler's own transaction.
   *
   * @throws {@link WebhookReplayError} `lease_lost`, `unsupported_option`
   */
  async commitIn(tx: unknown): Promise<void> {
    const { replayStore, leases } = this.store;
    const reservation = this.reservation!;
    if (replayStore.commitWith === undefined) {
      throw new WebhookReplayError(
        'unsupported_option',
        "the receiver's replay store cannot join a transaction: set replay.store to a PostgresReplayStore on the database of the transaction",
      );
    }
    if (this.state !== 'open') throw leaseLost();
    // From here on the entry is locked until the transaction ends, and an extension would wait for that.
    leases.drop(reservation);
    let recorded: boolean;
    try {
      this.committedByHandler = true;
      recorded = await replayStore.commitWith(tx, reservation);
    } catch (error) {
      this.committedByHandler = false;
      if (this.state === 'open') leases.hold(reservation);
      throw error;
    }
    if (recorded) return;
    this.committedByHandler = false;
    this.lost = leaseLost();
    throw this.lost;
  }

  private async retryRecording(reservation: ReplayReservation): Promise<boolean> {
    const { clock } = this.store;
    const deadline = clock.now() + RECORDING_TIME;
    for (let pause = SHORTEST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      try {
        const recorded = await this.record(reservation);
        this.settle();
        return recorded;
      } catch (cause) {
        if (clock.now() + pause > deadline) {
          this.state = 'open';
          throw new WebhookStoreError(
            'store_unavailable',
            'the replay store did not record the event',
            { cause },
          );
        }
        await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + pause, resolve));
      }
    }
  }

  /** An outage longer than the lease ends the reservation: unless another process took the event since, it is reserved again. */
  private async record(reservation: ReplayReservation): Promise<boolean> {
    const { replayStore } = this.store;
    if (await replayStore.commit(reservation)) return true;
    const verdict = await replayStore.reserve(reservation.claim);
    if (verdict.status === 'reserved') return replayStore.commit(verdict.reservation);
    return verdict.status === 'done';
  }

  private settle(): void {
    this.body.remove();
    this.state = 'settled';
    this.handling = false;
    if (this.reservation !== undefined) this.store.leases.drop(this.reservation);
  }
}

function leaseLost(): WebhookReplayError {
  return new WebhookReplayError(
    'lease_lost',
    'this handler no longer holds the lease of the event, or the event is recorded already: roll back; the sender repeats the event',
  );
}
