import type { WebhookClock } from '../clock/webhook-clock.js';
import type { ReplayReservation, ReplayStore } from './replay-store.js';

/** Leases are extended after a quarter of their time: if two extensions fail, the third is still in time. */
const EXTENSIONS_PER_LEASE = 4;

interface HeldLease {
  readonly reservation: ReplayReservation;
  /** When it was last extended, in epoch milliseconds. */
  extendedAt: number;
}

/**
 * Extends the leases of events that are being handled, so that a slow handler is not taken for a crashed one. One timer serves all of
 * them; it is not set again once no event is being handled.
 */
export class LeaseKeeper {
  /** By the key of the event. */
  private readonly held = new Map<string, HeldLease>();
  /** Extensions without an answer yet. Weak, since a store may never answer. */
  private readonly extending = new WeakSet<ReplayReservation>();
  private isArmed = false;

  constructor(
    private readonly store: ReplayStore,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  hold(reservation: ReplayReservation): void {
    this.held.set(reservation.claim.key, { reservation, extendedAt: this.clock.now() });
    if (!this.isArmed) this.arm();
  }

  drop(reservation: ReplayReservation): void {
    const { key } = reservation.claim;
    if (this.held.get(key)?.reservation === reservation) this.held.delete(key);
  }

  /** Whether this process is handling an event whose lease may have ended: the clock was set, or the process or the store stalled. */
  isOverdue(key: string): boolean {
    const extendedAt = this.held.get(key)?.extendedAt ?? Infinity;
    return this.clock.now() - extendedAt >= this.lease / 2;
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
    await Promise.allSettled([...this.held.values()].map(async (lease) => this.extend(lease)));
  }

  private async extend(lease: HeldLease): Promise<void> {
    const { reservation } = lease;
    // A hanging store would get one more call to answer when it recovers.
    if (this.extending.has(reservation)) return;
    this.extending.add(reservation);
    const now = this.clock.now();
    try {
      // A failure is retried at the next wake-up; the lease outlives two failures.
      if (await this.store.extend(reservation)) lease.extendedAt = now;
    } finally {
      this.extending.delete(reservation);
    }
  }
}
