import type { WebhookClock } from '../clock/webhook-clock.js';
import type { ReplayReservation } from './replay-store.js';

/** Milliseconds between two tries while the store is unavailable. */
const RETRY_INTERVAL = 1_000;
/** Reservations that are remembered; the lease of the others has to expire. */
const MAX_LOST = 1_000;

/**
 * Releases reservations that a store may have made although its answer was lost.
 *
 * The webhook was rejected with 503. Until its reservation is released or its lease expires, every further attempt is rejected
 * with 409, and the sender waits longer from attempt to attempt.
 */
export class LostReservations {
  private readonly lost = new Map<ReplayReservation, number>();
  private isReleasing = false;

  /** @param release - releases a reservation, and rejects while the store is unavailable */
  constructor(
    private readonly release: (reservation: ReplayReservation) => Promise<unknown>,
    private readonly clock: WebhookClock,
  ) {}

  /** Releases a reservation as soon as the store is available, and forgets it when its lease has expired. */
  add(reservation: ReplayReservation): void {
    if (this.lost.size >= MAX_LOST) return;
    this.lost.set(reservation, this.clock.now() + reservation.claim.lease);
    if (!this.isReleasing) this.schedule();
  }

  private schedule(): void {
    this.isReleasing = this.lost.size > 0;
    if (!this.isReleasing) return;
    this.clock.wakeAt(this.clock.now() + RETRY_INTERVAL, () => void this.releaseAll());
  }

  /** One after the other, so that only one statement fails while the store is unavailable. */
  private async releaseAll(): Promise<void> {
    try {
      for (const [reservation, end] of this.lost) {
        if (this.clock.now() < end) await this.release(reservation);
        this.lost.delete(reservation);
      }
    } catch {
      // The next round tries again.
    }
    this.schedule();
  }
}
