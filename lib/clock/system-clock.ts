import { WebhookClock, type CancelWake } from './webhook-clock.js';

/** setTimeout fires at once above this many milliseconds, about 24.8 days. */
const LONGEST_TIMEOUT = 2 ** 31 - 1;

/** The machine's clock. Its timers never keep the process alive by themselves. */
export class SystemClock extends WebhookClock {
  override now(): number {
    return Date.now();
  }

  override wakeAt(at: number, wake: () => void): CancelWake {
    let timer: NodeJS.Timeout;
    const arm = (): void => {
      const rest = at - Date.now();
      timer =
        rest > LONGEST_TIMEOUT
          ? setTimeout(arm, LONGEST_TIMEOUT)
          : setTimeout(wake, Math.max(0, rest));
      timer.unref();
    };
    arm();
    return () => clearTimeout(timer);
  }
}
