import type { CancelWake, WebhookClock } from '../../clock/webhook-clock.js';
import type { ReplayReservation, ReplayStore } from '../../replay/replay-store.js';

/** Leases are extended when a third of them has passed: two extensions may fail before one ends. */
const EXTENSIONS_PER_LEASE = 3;

/**
 * Extends the leases of the events that are being handled, so that a long handler is not taken for a
 * crashed one. One wake-up serves them all, and none is armed while nothing is being handled.
 */
export class LeaseKeeper {
  private readonly held = new Set<ReplayReservation>();
  private cancel: CancelWake | undefined;

  constructor(
    private readonly store: ReplayStore,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  hold(reservation: ReplayReservation): void {
    this.held.add(reservation);
    this.cancel ??= this.arm();
  }

  drop(reservation: ReplayReservation): void {
    this.held.delete(reservation);
  }

  private arm(): CancelWake {
    return this.clock.wakeAt(this.clock.now() + this.lease / EXTENSIONS_PER_LEASE, () => {
      this.cancel = undefined;
      void this.extendAll();
      if (this.held.size > 0) this.cancel = this.arm();
    });
  }

  private async extendAll(): Promise<void> {
    // A store that fails now is asked again at the next wake-up; the lease outlives two failures.
    await Promise.allSettled(
      [...this.held].map(async (reservation) => this.store.extend(reservation)),
    );
  }
}
