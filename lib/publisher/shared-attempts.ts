import { WebhookStoreError } from '../errors/webhook-store.error.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { FirstAttempts } from './first-attempts.js';
import type { DeliveryQueue } from '../queue/delivery-queue.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import { resultOfReceipt, resultOfWait } from './send-result.js';

/** Milliseconds between two questions: most attempts are over within the first. */
const FIRST_WAIT = 100;
const LONGEST_WAIT = 2_000;
/** A delivery that is put off for longer than this waits for its destination, not for a free slot. */
const PUT_OFF = 5_000;

/**
 * Asks a shared queue what became of a first attempt, as another process may be the one that makes it: it is that
 * process which gets the report then.
 */
export class SharedAttempts {
  constructor(
    private readonly queue: DeliveryQueue,
    private readonly firstAttempts: FirstAttempts,
    private readonly clock: WebhookClock,
  ) {}

  /** Settles the expectation of a delivery that was recorded; whoever does it first is heard. */
  watch(delivery: WebhookDelivery, notBefore: number, wait = FIRST_WAIT): void {
    if (!this.queue.shared || !this.firstAttempts.awaits(delivery.id)) return;
    this.clock.wakeAt(this.clock.now() + wait, () => {
      void this.ask(delivery, notBefore).finally(() =>
        this.watch(delivery, notBefore, Math.min(wait * 2, LONGEST_WAIT)),
      );
    });
  }

  private async ask({ id, eventId }: WebhookDelivery, notBefore: number): Promise<void> {
    if (!this.firstAttempts.awaits(id)) return;
    // A queue that cannot be reached is asked again, for as long as somebody waits.
    const found = await this.find(id);
    if (found === undefined) return;
    const [receipt] = found;
    if (receipt === undefined) return this.firstAttempts.fail(id, forgotten());
    const putOff =
      receipt.status === 'pending' &&
      receipt.nextAttemptAt > Math.max(notBefore, this.clock.now()) + PUT_OFF;
    const result = putOff ? resultOfWait(eventId, receipt) : resultOfReceipt(eventId, receipt);
    if (result !== undefined) this.firstAttempts.settle(id, () => result);
  }

  /** @returns `undefined` where the queue cannot be asked */
  private async find(id: string): Promise<Awaited<ReturnType<DeliveryQueue['find']>> | undefined> {
    try {
      return await this.queue.find([id]);
    } catch {
      return undefined;
    }
  }
}

function forgotten(): WebhookStoreError {
  return new WebhookStoreError(
    'store_unavailable',
    'The delivery was recorded, and the queue does not know it any more: what became of it cannot be told.',
  );
}
