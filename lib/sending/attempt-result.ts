import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookReceipt } from '../token/webhook-receipt.interface.js';
import type { AttemptResult } from './attempt-result.interface.js';
import { isAcknowledged, type NoAnswer, type ReceiverAnswer } from './receiver-answer.js';
import { parseRetryAfter } from './retry-after.js';

/** What is known of an attempt besides what came of it. */
export interface AttemptCircumstances extends Pick<
  AttemptResult,
  'attempt' | 'method' | 'durationMs'
> {
  /** Makes the receipt of the last request; absent where there was none. */
  readonly receipt: (() => WebhookReceipt) | undefined;
}

/** After these no later attempt can do better. */
const FINAL: ReadonlySet<FailureReason> = new Set(['destination_blocked', 'invalid_request']);

/**
 * Says how an attempt ended.
 *
 * @param now - epoch milliseconds, for a Retry-After that is a date
 */
export function attemptResult(
  { attempt, method, durationMs, receipt }: AttemptCircumstances,
  answer: ReceiverAnswer | NoAnswer,
  now: number,
): AttemptResult {
  const { statusCode } = answer;
  if (statusCode !== undefined && isAcknowledged(method, answer)) {
    return { attempt, method, durationMs, outcome: 'acknowledged', statusCode };
  }
  const seen = {
    attempt,
    method,
    durationMs,
    ...(receipt !== undefined && { receipt: receipt() }),
  };
  if (statusCode === undefined) {
    const { reason } = answer;
    return { ...seen, outcome: FINAL.has(reason) ? 'refused' : 'failed', reason };
  }
  const retryAfter = parseRetryAfter(answer.retryAfter, now);
  return {
    ...seen,
    outcome: 'failed',
    statusCode,
    reason: `http_${statusCode}`,
    ...(retryAfter !== undefined && { retryAfter }),
  };
}
