/** Cancels a wake-up; calling it twice, or too late, does nothing. */
export type CancelWake = () => void;

/**
 * The time, and a way to be woken: the only source of both in this package, so that a test can hold
 * them in its hand.
 */
export abstract class WebhookClock {
  /** Milliseconds since the epoch. */
  abstract now(): number;

  /**
   * Calls `wake` once, when the time has come; at once (but not within this call) when it has passed.
   *
   * @param at - milliseconds since the epoch
   */
  abstract wakeAt(at: number, wake: () => void): CancelWake;
}
