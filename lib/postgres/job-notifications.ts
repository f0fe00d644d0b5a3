import { randomUUID } from 'node:crypto';
import type { Db } from 'pg-boss';
import { type CancelWake, waitUntil, type WebhookClock } from '../clock/webhook-clock.js';

/** Milliseconds between two tests of the subscription, which also keep its connection open. */
const TEST_INTERVAL = 30_000;
/** Milliseconds until a notification of this process must have arrived. */
const TEST_TIMEOUT = 5_000;
/** Milliseconds until a failed subscription is tried again; doubled up to the longest. */
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 300_000;

type Subscription = Awaited<ReturnType<NonNullable<Db['listen']>>>;

interface JobNotificationsParts {
  readonly db: Db;
  /** See {@link notificationChannel}. */
  readonly channel: string;
  /** Name of the queue: the notifications of others are ignored. */
  readonly name: string;
  /** Called for each notification, and when some may have been missed. */
  readonly onNotification: () => void;
  readonly clock: WebhookClock;
}

/** The channel that all queues of a schema share; the notification is the queue's name. */
export function notificationChannel(schema: string): string {
  return `${schema}_jobs`;
}

/**
 * Receives the notifications of processes that have recorded deliveries, over a connection of its own.
 *
 * They only save the wait for the next poll, so nothing depends on them. Some connections accept LISTEN but never pass a
 * notification on, such as those of a transaction pooler. Each subscription is therefore tested with a notification of its
 * own, and closed if that does not arrive.
 */
export class JobNotifications {
  private subscription: Subscription | undefined;
  private failures = 0;
  private stopped = false;
  private cancelTimer: CancelWake = () => {};
  private checking: Promise<void> | undefined;
  private onTest: (id: string) => void = () => {};
  private endTest: () => void = () => {};

  constructor(private readonly parts: JobNotificationsParts) {}

  start(): void {
    this.checking = this.check();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    this.cancelTimer();
    this.endTest();
    await this.checking;
    await this.unsubscribe();
  }

  private async check(): Promise<void> {
    const { db, clock } = this.parts;
    if (db.listen === undefined) return;
    let pause = TEST_INTERVAL;
    try {
      this.subscription ??= await this.subscribe(db.listen.bind(db));
      await this.test();
      this.failures = 0;
    } catch {
      await this.unsubscribe();
      pause = Math.min(FIRST_PAUSE * 2 ** this.failures++, LONGEST_PAUSE);
    }
    if (!this.stopped) this.cancelTimer = clock.wakeAt(clock.now() + pause, () => this.start());
  }

  private async subscribe(listen: NonNullable<Db['listen']>): Promise<Subscription> {
    const { channel, name, onNotification } = this.parts;
    const receive = (payload: string): void => {
      if (payload === name) onNotification();
      else this.onTest(payload);
    };
    return listen(channel, receive, onNotification);
  }

  /** @throws if a notification does not arrive */
  private async test(): Promise<void> {
    const { db, channel, clock } = this.parts;
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
    // Over another connection: a pooler may return it to the one that has sent it.
    await db.executeSql('SELECT pg_notify($1::text, $2::text)', [channel, id]);
    if (this.stopped) return;
    await waitUntil(clock, clock.now() + TEST_TIMEOUT, arrived);
    if (!hasArrived) throw new Error('the notification did not arrive');
  }

  private async unsubscribe(): Promise<void> {
    const { subscription } = this;
    this.subscription = undefined;
    await subscription?.close().catch(() => {});
  }
}
