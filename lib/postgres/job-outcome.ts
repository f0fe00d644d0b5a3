import { progressAfter } from '../queue/delivery-progress.js';
import type { DeliveryOutcome } from '../queue/delivery-queue.js';
import type { ClaimedJob, Settlement } from './job-statements.js';

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
  switch (outcome?.type) {
    case 'delivered':
      return { id, claim, state: 'completed', output: { attempts: data.attempts + 1 } };
    case 'dead': {
      const { reason } = outcome;
      return { id, claim, state: 'failed', output: { attempts: outcome.attempts, reason } };
    }
    default:
      return { id, claim, state: 'retry', change: progressAfter(data, outcome, now) };
  }
}
