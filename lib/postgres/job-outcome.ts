import type { DeliveryOutcome } from '../publisher/queue/delivery-queue.js';
import type { ClaimedJob, Settlement } from './job-statements.js';

/** Milliseconds. */
const FIRST_WAIT_AFTER_THROW = 1_000;
const LONGEST_WAIT_AFTER_THROW = 300_000;

/**
 * What becomes of a job by the outcome of its attempt.
 *
 * @param outcome - `undefined` where the handler threw
 */
export function settlementOf(
  { id, claim, data }: ClaimedJob,
  outcome: DeliveryOutcome | undefined,
  now: number,
): Settlement {
  const { attempts, throws } = data;
  switch (outcome?.type) {
    case 'delivered':
      return { id, claim, state: 'completed', output: { attempts: attempts + 1 } };
    case 'dead': {
      const { reason } = outcome;
      return { id, claim, state: 'failed', output: { attempts: outcome.attempts, reason } };
    }
    case 'retry': {
      const { at: dueAt, reason } = outcome;
      return {
        id,
        claim,
        state: 'retry',
        change: { attempts: attempts + 1, reason, dueAt, throws: 0 },
      };
    }
    case 'defer':
      return { id, claim, state: 'retry', change: { dueAt: outcome.at, throws: 0 } };
    default: {
      const dueAt = now + waitAfterThrow(throws);
      return { id, claim, state: 'retry', change: { dueAt, throws: throws + 1 } };
    }
  }
}

function waitAfterThrow(throws: number): number {
  return Math.min(FIRST_WAIT_AFTER_THROW * 2 ** Math.min(throws, 16), LONGEST_WAIT_AFTER_THROW);
}
