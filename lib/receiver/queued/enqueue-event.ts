import { inTime } from '../../clock/deadline.js';
import type { WebhookClock } from '../../clock/webhook-clock.js';
import { WebhookStoreError } from '../../errors/webhook-store.error.js';
import { isWebhookError } from '../../errors/webhook.error.js';
import type { WebhookReception } from '../replay/webhook-reception.js';
import type { QueuedEvents } from './queued-events.resolver.js';
import { deliveryOfEvent } from './received-delivery.js';

/** Milliseconds a queue has to record an event; it may hold a body of many megabytes. */
const TIME_TO_RECORD = 10_000;

/**
 * Records an event that was let in, for its handlers to get it later. One that is recorded already, by a process that
 * crashed before it could say so, is left as it is.
 *
 * A queue that has answered too late may have recorded it all the same: it is sent again then, and known.
 *
 * @throws {@link WebhookStoreError} where it cannot be recorded
 */
export async function enqueueEvent(
  { event, identity }: WebhookReception,
  { queue, retry }: QueuedEvents,
  clock: WebhookClock,
): Promise<void> {
  const now = clock.now();
  const record = async (): Promise<void> => {
    const delivery = await deliveryOfEvent(event, identity, now);
    const notBefore = now + retry.waitBefore(1);
    const [receipt] = await queue.enqueue([{ delivery, notBefore }]);
    // It was given up, and its sender sends it once more: to be acknowledged it must have another chance.
    if (receipt?.status === 'dead') await queue.redrive([delivery.id]);
  };
  try {
    await inTime(clock, TIME_TO_RECORD, record, () => unavailable('did not answer in time'));
  } catch (error) {
    if (isWebhookError(error)) throw error;
    throw unavailable('cannot be reached', error);
  }
}

function unavailable(why: string, cause?: unknown): WebhookStoreError {
  return new WebhookStoreError('store_unavailable', `the queue of received events ${why}`, {
    cause,
  });
}
