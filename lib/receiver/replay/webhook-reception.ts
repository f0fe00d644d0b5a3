import type { ReplayReservation, ReplayStore } from '../../replay/replay-store.js';
import type { RequestBody } from '../spool/request-body.js';
import type { LeaseKeeper } from './lease-keeper.js';
import type { WebhookEvent } from '../webhook-event.js';

/**
 * A verified event with its place in the replay store: whoever handles it completes or fails it, once.
 */
export class WebhookReception {
  private open: boolean;
  private handling = false;
  private failed = false;

  constructor(
    readonly event: WebhookEvent,
    /** Absent for an event that was handled before. */
    private readonly reservation: ReplayReservation | undefined,
    private readonly store: ReplayStore,
    private readonly leases: LeaseKeeper,
    private readonly body: RequestBody,
  ) {
    this.open = reservation !== undefined;
    if (reservation !== undefined) leases.hold(reservation);
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

  /** Says that a handler begins: from now on nobody else settles the event. */
  begin(): void {
    this.handling = true;
  }

  /** Says that the handler failed. */
  async failHandler(): Promise<void> {
    this.failed = true;
    await this.fail();
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
   * Records the event as handled.
   *
   * @returns whether it is on record. Where it is not, the effect has happened all the same, so the sender
   *   still gets its success: refusing it would only make sure that the event is handled twice.
   */
  async complete(): Promise<boolean> {
    return this.settle((reservation) => this.store.commit(reservation));
  }

  /** Frees the event, so that it can be sent again. Where the store fails, its lease frees it later. */
  async fail(): Promise<boolean> {
    return this.settle((reservation) => this.store.release(reservation));
  }

  private async settle(
    step: (reservation: ReplayReservation) => boolean | Promise<boolean>,
  ): Promise<boolean> {
    this.body.remove();
    if (!this.open || this.reservation === undefined) return true;
    this.open = false;
    this.handling = false;
    this.leases.drop(this.reservation);
    try {
      return await step(this.reservation);
    } catch {
      return false;
    }
  }
}
