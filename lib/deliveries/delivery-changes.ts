import type { MadeAttempt } from '../sending/made-attempt.interface.js';
import type { DeliveryReport } from './webhook.deliverer.js';
import type { DeliveryChange, LoggedAttempt, LoggedDelivery } from './delivery-log.js';

/**
 * What a run has changed.
 *
 * @param at - epoch milliseconds
 */
export function changeOf(
  { delivery, attempt, outcome, made }: DeliveryReport,
  at: number,
): DeliveryChange {
  const facts = { delivery, at, ...(made !== undefined && { made: loggedAttempt(made) }) };
  switch (outcome.type) {
    case 'delivered':
      return { ...facts, status: 'delivered', attempts: attempt };
    case 'retry':
      return {
        ...facts,
        status: 'pending',
        attempts: attempt,
        nextAttemptAt: outcome.at,
        reason: outcome.reason,
      };
    case 'defer':
      // Put off, which counts no attempt, also where one was cut off.
      return { ...facts, status: 'pending', attempts: attempt - 1, nextAttemptAt: outcome.at };
    case 'dead':
      return { ...facts, status: 'dead', attempts: outcome.attempts, reason: outcome.reason };
  }
}

/** What a new round under the old id changes. */
export function changeOfRedrive({ delivery }: LoggedDelivery, at: number): DeliveryChange {
  return { delivery, status: 'pending', attempts: 0, nextAttemptAt: at, at };
}

function loggedAttempt({ result, at, answer }: MadeAttempt): LoggedAttempt {
  const { attempt, method, durationMs, statusCode } = result;
  return {
    attempt,
    at,
    method,
    durationMs,
    ...(statusCode !== undefined && { statusCode }),
    ...(result.outcome !== 'acknowledged' && { reason: result.reason }),
    ...(answer !== undefined && { answer }),
  };
}
