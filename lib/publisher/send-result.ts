import type { DeliveryReceipt } from '../queue/delivery-queue.js';
import type { SendResult } from './publish-options.interface.js';
import type { DeliveryReport } from '../deliveries/webhook.deliverer.js';

/** Tells the caller of `send` how the first run ended. */
export function resultOfReport({ delivery, outcome, result, made }: DeliveryReport): SendResult {
  const facts = {
    id: delivery.eventId,
    durationMs: result?.durationMs ?? 0,
    ...(result?.statusCode !== undefined && { statusCode: result.statusCode }),
    ...(made?.receipt !== undefined && { receipt: made.receipt() }),
  };
  const attempts = result?.attempt ?? 0;
  switch (outcome.type) {
    case 'delivered':
      return { ...facts, attempts, status: 'delivered' };
    case 'dead':
      return {
        ...facts,
        attempts: outcome.attempts,
        status: 'failed',
        failureReason: outcome.reason,
      };
    case 'retry':
      return {
        ...facts,
        attempts,
        status: 'scheduled',
        nextAttemptAt: new Date(outcome.at),
        failureReason: outcome.reason,
      };
    case 'defer':
      return { ...facts, attempts, status: 'scheduled', nextAttemptAt: new Date(outcome.at) };
  }
}

/**
 * Tells it from what the queue remembers, when the first attempt is long over.
 *
 * @returns `undefined` when it is still to come
 */
export function resultOfReceipt(id: string, receipt: DeliveryReceipt): SendResult | undefined {
  switch (receipt.status) {
    case 'recorded':
      return undefined;
    case 'delivered':
      return { id, status: 'delivered', attempts: receipt.attempts, durationMs: 0 };
    case 'dead':
      return {
        id,
        status: 'failed',
        attempts: receipt.attempts,
        durationMs: 0,
        failureReason: receipt.reason,
      };
    case 'pending':
      return receipt.attempts === 0 ? undefined : resultOfWait(id, receipt);
  }
}

/** Tells that a delivery waits for its next attempt, which may be the first. */
export function resultOfWait(
  id: string,
  receipt: Extract<DeliveryReceipt, { status: 'pending' }>,
): SendResult {
  return {
    id,
    status: 'scheduled',
    attempts: receipt.attempts,
    durationMs: 0,
    nextAttemptAt: new Date(receipt.nextAttemptAt),
    ...(receipt.reason !== undefined && { failureReason: receipt.reason }),
  };
}
