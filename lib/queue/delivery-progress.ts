import type { FailureReason } from './failure-reason.js';
import type { DeliveryOutcome, KnownDelivery } from './webhook-queue.js';

/** The attempts of a delivery that is not done, as an engine stores them. */
export interface DeliveryProgress {
  /** Failed attempts of this round. */
  readonly attempts: number;
  /** Why the last attempt failed. */
  readonly reason?: FailureReason | null;
  /** When the next run is due, in epoch milliseconds. */
  readonly dueAt: number;
  /** How often in a row the handler threw. */
  readonly throws: number;
}

/** Whether a run made a request, so that its duration says something about the destination. */
export function wasAttempt(outcome: DeliveryOutcome | undefined): boolean {
  return outcome !== undefined && outcome.type !== 'defer';
}

/** Milliseconds. */
export const FIRST_WAIT_AFTER_THROW = 1_000;
const LONGEST_WAIT_AFTER_THROW = 300_000;

/** Milliseconds until the next run after the handler threw. @param throws - how often in a row it threw before */
export function waitAfterThrow(throws: number): number {
  return Math.min(FIRST_WAIT_AFTER_THROW * 2 ** Math.min(throws, 16), LONGEST_WAIT_AFTER_THROW);
}

/**
 * Returns the changed progress of a delivery that stays in the queue.
 *
 * @param outcome - `undefined` if the handler threw
 * @param now - epoch milliseconds
 */
export function progressAfter(
  { attempts, throws }: DeliveryProgress,
  outcome: Extract<DeliveryOutcome, { type: 'retry' | 'defer' }> | undefined,
  now: number,
): Partial<DeliveryProgress> & Pick<DeliveryProgress, 'dueAt'> {
  switch (outcome?.type) {
    case 'retry': {
      const { at: dueAt, reason } = outcome;
      return { attempts: attempts + 1, reason, dueAt, throws: 0 };
    }
    case 'defer':
      return { dueAt: outcome.at, throws: 0 };
    case undefined:
      return { dueAt: now + waitAfterThrow(throws), throws: throws + 1 };
  }
}

/** The receipt of a delivery that is not done. */
export function pendingReceipt(
  recorded: RecordedFacts,
  { attempts, reason, dueAt: nextAttemptAt }: DeliveryProgress,
): KnownDelivery {
  const pending = {
    ...receiptFacts(recorded),
    status: 'pending',
    attempts,
    nextAttemptAt,
  } as const;
  return reason === undefined || reason === null ? pending : { ...pending, reason };
}

/** The members of a delivery that every receipt repeats. */
export interface RecordedFacts {
  readonly id: string;
  readonly contentDigest?: string | null | undefined;
}

/** Leaves an absent digest out of the receipt. */
export function receiptFacts({ id, contentDigest }: RecordedFacts): {
  id: string;
  contentDigest?: string;
} {
  return typeof contentDigest === 'string' ? { id, contentDigest } : { id };
}
