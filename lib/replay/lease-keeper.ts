import type { WebhookClock } from '../clock/webhook-clock.js';
import type { ReplayReservation, ReplayStore } from './replay-store.js';

/** Leases are extended after a quarter of their time: if two extensions fail, the third is still in time. */
const EXTENSIONS_PER_LEASE = 4;

/**
 * Extends the leases of events that are being handled, so that a slow handler is not taken for a crashed one. One timer serves all of
 * them; it is not set again once no event is being handled.
 */
export class LeaseKeeper {
  private readonly held = new Set<ReplayReservation>();
  /** Extensions without an answer yet. Weak, since a store may never answer. */
  private readonly extending = new WeakSet<ReplayReservation>();
  private isArmed = false;

  constructor(
    private readonly store: ReplayStore,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  hold(reservation: ReplayReservation): void {
    this.held.add(reservation);
    if (!this.isArmed) this.arm();
  }

  drop(reservation: ReplayReservation): void {
    this.held.delete(reservation);
  }

  private arm(): void {
    this.isArmed = true;
    this.clock.wakeAt(this.clock.now() + this.lease / EXTENSIONS_PER_LEASE, () => {
      this.isArmed = false;
      void this.extendAll();
      if (this.held.size > 0) this.arm();
    });
  }

  private async extendAll(): Promise<void> {
    await Promise.allSettled([...this.held].map(async (reservation) => this.extend(reservation)));
  }

  private async extend(reservation: ReplayReservation): Promise<void> {
    // A hanging store would get one more call to answer when it recovers.
    if (this.extending.has(reservation)) return;
    this.extending.add(reservation);
    try {
      // A failure is retried at the next wake-up; the lease outlives two failures.
      await this.store.extend(reservation);
    } finally {
      this.extending.delete(reservation);
    }
  }
}
