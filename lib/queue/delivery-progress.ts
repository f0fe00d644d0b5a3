import type { FailureReason } from './failure-reason.js';
import type { DeliveryOutcome, KnownDelivery } from './webhook-queue.js';

/** What an engine keeps of a delivery's attempts while it is on its way. */
export interface DeliveryProgress {
  /** Attempts that have failed in this round. */
  readonly attempts: number;
  /** Why the last of them failed. */
  readonly reason?: FailureReason | null;
  /** When it is due, in epoch milliseconds. */
  readonly dueAt: number;
  /** Times in a row that the handler itself has thrown. */
  readonly throws: number;
}

/** Whether a run made a request, so that its duration says something about the destination. */
export function wasAttempt(outcome: DeliveryOutcome | undefined): boolean {
  return outcome !== undefined && outcome.type !== 'defer';
}

/** Milliseconds. */
export const FIRST_WAIT_AFTER_THROW = 1_000;
const LONGEST_WAIT_AFTER_THROW = 300_000;

/** Milliseconds until a delivery runs again whose handler has thrown so often before. */
export function waitAfterThrow(throws: number): number {
  return Math.min(FIRST_WAIT_AFTER_THROW * 2 ** Math.min(throws, 16), LONGEST_WAIT_AFTER_THROW);
}

/**
 * What changes for a delivery that stays in the queue.
 *
 * @param outcome - `undefined` where the handler threw
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

/** What every receipt repeats of the delivery as it was recorded. */
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
