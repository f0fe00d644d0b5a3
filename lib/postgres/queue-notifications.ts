import { randomUUID } from 'node:crypto';
import { type CancelWake, waitUntil, type WebhookClock } from '../clock/webhook-clock.js';

/** Milliseconds between two tests of the subscription, which also keep its connection open. */
const TEST_INTERVAL = 30_000;
/** Milliseconds until a notification of this process must have arrived. */
const TEST_TIMEOUT = 5_000;
/** Milliseconds until a failed subscription is tried again; doubled up to the longest. */
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 300_000;

type Unsubscribe = () => Promise<void>;

interface QueueNotificationsParts {
  /** Subscribes; calls `onLost` when the connection is lost. `undefined` if no connection can be spared. */
  readonly listen: (
    receive: (payload: string) => void,
    onLost: () => void,
  ) => Promise<Unsubscribe | undefined>;
  /** Sends a notification over another connection: a pooler may return it to the one that has sent it. */
  readonly notify: (payload: string) => Promise<unknown>;
  /** Name of the queue: the notifications of others are ignored. */
  readonly name: string;
  /** Called for each notification, and when some may have been missed. */
  readonly onNotification: () => void;
  /** Called once, if the first connection accepts LISTEN but passes no notification on. */
  readonly onUnsupported: () => void;
  readonly clock: WebhookClock;
}

/**
 * Receives the notifications of processes that have recorded deliveries, over a connection of its own.
 *
 * They only save the wait for the next poll, so nothing depends on them. A transaction pooler accepts LISTEN but never
 * passes a notification on, and each LISTEN stays on a connection that others use. Each subscription is therefore tested
 * with a notification of its own; if the first one never arrives, no other is tried.
 */
export class QueueNotifications {
  private unsubscribe: Unsubscribe | undefined;
  private failures = 0;
  private hasWorked = false;
  private stopped = false;
  private cancelTimer: CancelWake = () => {};
  private checking: Promise<void> = Promise.resolve();
  private onTest: (id: string) => void = () => {};
  private endTest: () => void = () => {};

  constructor(private readonly parts: QueueNotificationsParts) {}

  start(): void {
    // One after the other: the connection may be lost during a check.
    this.checking = this.checking.then(async () => this.check());
  }

  async stop(): Promise<void> {
    this.stopped = true;
    this.cancelTimer();
    this.endTest();
    await this.checking;
    await this.close();
  }

  private async check(): Promise<void> {
    if (this.stopped) return;
    let pause = TEST_INTERVAL;
    try {
      this.unsubscribe ??= await this.subscribe();
      if (this.unsubscribe === undefined) {
        this.stopped = true;
        return;
      }
      const arrived = await this.test();
      // Without a subscription, its connection was lost during the test.
      const isDropped = !arrived && this.unsubscribe !== undefined;
      if (isDropped && !this.hasWorked && !this.stopped) {
        this.stopped = true;
        this.parts.onUnsupported();
      }
      if (!arrived) throw new Error('the notification did not arrive');
      this.hasWorked = true;
      this.failures = 0;
    } catch {
      await this.close();
      pause = Math.min(FIRST_PAUSE * 2 ** this.failures++, LONGEST_PAUSE);
    }
    this.schedule(pause);
  }

  private schedule(pause: number): void {
    const { clock } = this.parts;
    this.cancelTimer();
    if (!this.stopped) this.cancelTimer = clock.wakeAt(clock.now() + pause, () => this.start());
  }

  private async subscribe(): Promise<Unsubscribe | undefined> {
    const { listen, name, onNotification } = this.parts;
    const receive = (payload: string): void => {
      if (payload === name) onNotification();
      else this.onTest(payload);
    };
    const onLost = (): void => {
      void this.close();
      this.endTest();
      this.schedule(FIRST_PAUSE);
    };
    const unsubscribe = await listen(receive, onLost);
    if (unsubscribe !== undefined) onNotification();
    return unsubscribe;
  }

  /** @returns whether a notification arrives */
  private async test(): Promise<boolean> {
    const { notify, clock } = this.parts;
    const id = randomUUID();
    let hasArrived = false;
    const arrived = new Promise<void>((resolve) => {
      this.endTest = resolve;
      this.onTest = (received) => {
        if (received !== id) return;
        hasArrived = true;
        resolve();
      };
    });
    await notify(id);
    if (!this.stopped) await waitUntil(clock, clock.now() + TEST_TIMEOUT, arrived);
    return hasArrived;
  }

  private async close(): Promise<void> {
    const { unsubscribe } = this;
    this.unsubscribe = undefined;
    await unsubscribe?.().catch(() => {});
  }
}
