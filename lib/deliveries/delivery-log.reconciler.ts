import type { BeforeApplicationShutdown, OnApplicationBootstrap } from '@nestjs/common';
import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { errorName } from '../errors/webhook.error.js';
import type { KnownDelivery, WebhookQueue } from '../queue/webhook-queue.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type {
  DeliveryChange,
  DeliveryLog,
  DeliveryPageRequest,
  LoggedDelivery,
} from './delivery-log.js';
import type { DeliveryLogWriter } from './delivery-log.writer.js';

const MINUTE = 60_000;
const SWEEP_INTERVAL = MINUTE;
/** Milliseconds that a delivery is overdue before the queue is asked; attempts at work are overdue by less. */
const ASK_AFTER = MINUTE / 2;
/** Milliseconds that a delivery is overdue before it is given up because the queue does not know it. */
const GIVE_UP_AFTER = 60 * MINUTE;
const PAGE = 100;

/**
 * Corrects the delivery log where a crash, or an outage of the log, has left deliveries pending.
 *
 * At start-up and every minute, it asks the queue for the pending deliveries that are overdue, and records what the queue knows
 * of them. A delivery that the queue does not know and that is overdue by an hour becomes dead (`outcome_unknown`): it was lost
 * with a queue in memory, or was done so long ago that the queue has forgotten it.
 *
 * Any number of processes may sweep at once: each correction holds only while the log knows nothing newer.
 */
export class DeliveryLogReconciler implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly logger = new PublisherLog();
  private cancelNext: CancelWake | undefined;
  private stopped = false;

  constructor(
    private readonly log: DeliveryLog | undefined,
    private readonly queue: WebhookQueue,
    private readonly writer: DeliveryLogWriter,
    private readonly clock: WebhookClock,
  ) {}

  /** @hidden */
  onApplicationBootstrap(): void {
    // A log and a queue of this process alone end together, and never differ.
    if (this.log?.durable === true || this.queue.shared) this.sweepAt(this.clock.now());
  }

  /** @hidden */
  beforeApplicationShutdown(): void {
    this.stopped = true;
    this.cancelNext?.();
  }

  /** Compares every overdue delivery with the queue, once. */
  async sweep(): Promise<void> {
    const { log, clock } = this;
    if (log === undefined) return;
    await this.writer.flushed();
    const filter = { status: 'pending', dueBefore: clock.now() - ASK_AFTER } as const;
    let after: DeliveryPageRequest['after'];
    for (let isLast = false; !isLast && !this.stopped;) {
      const page = await log.list(filter, { limit: PAGE, ...(after && { after }) });
      const asked = clock.now();
      const known = await this.queue.find(page.map(({ delivery }) => delivery.id));
      const changes = page.flatMap(
        (logged, index) => correction(logged, known[index], asked) ?? [],
      );
      for (const change of changes) this.writer.changed(change);
      this.reportLost(changes);
      await this.writer.flushed();
      after = page.at(-1)?.delivery;
      isLast = page.length < PAGE;
    }
  }

  private sweepAt(at: number): void {
    this.cancelNext = this.clock.wakeAt(at, () => void this.sweepAgain());
  }

  private async sweepAgain(): Promise<void> {
    try {
      await this.sweep();
    } catch (error) {
      const name = errorName(error);
      this.logger.debug(
        () =>
          `The delivery log could not be compared with the queue (${name}); retrying in a minute.`,
      );
    }
    if (!this.stopped) this.sweepAt(this.clock.now() + SWEEP_INTERVAL);
  }

  private reportLost(changes: readonly DeliveryChange[]): void {
    const lost = changes.filter(({ reason }) => reason === 'outcome_unknown').length;
    if (lost === 0) return;
    this.logger.warn(
      () =>
        `Delivery log: ${lost} pending deliveries are unknown to the queue and were recorded as dead (outcome_unknown). Redeliver them if their receivers have not seen them.`,
    );
  }
}

/**
 * What the log should record instead; `undefined` if it is right.
 *
 * @param asked - when the queue was asked, in epoch milliseconds
 */
function correction(
  { delivery, attempts, nextAttemptAt = 0 }: LoggedDelivery,
  known: KnownDelivery | undefined,
  asked: number,
): DeliveryChange | undefined {
  const facts = { delivery, at: asked };
  switch (known?.status) {
    case 'delivered':
      return { ...facts, status: 'delivered', attempts: known.attempts };
    case 'dead':
      return { ...facts, status: 'dead', attempts: known.attempts, reason: known.reason };
    case 'pending': {
      const { reason } = known;
      // Overdue in the queue too: a backlog, and not an error of the log.
      if (known.nextAttemptAt <= nextAttemptAt) return undefined;
      return {
        ...facts,
        status: 'pending',
        attempts: known.attempts,
        nextAttemptAt: known.nextAttemptAt,
        ...(reason !== undefined && { reason }),
      };
    }
    case undefined:
      if (asked - nextAttemptAt < GIVE_UP_AFTER) return undefined;
      return { ...facts, status: 'dead', attempts, reason: 'outcome_unknown' };
  }
}
