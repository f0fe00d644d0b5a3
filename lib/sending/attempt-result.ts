import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import { isAcknowledged, type NoAnswer, type ReceiverAnswer } from './receiver-answer.js';

/** A receiver cannot delay a delivery by more than this many milliseconds, 24 h. */
export const MAX_RETRY_AFTER = 24 * 3_600_000;

/**
 * Reads a Retry-After: whole seconds, or an HTTP date.
 *
 * @param now - epoch milliseconds, to count a date from
 * @returns milliseconds to wait, at most 24 h; `undefined` if the value is neither
 * @see RFC 9110, sections 10.2.3 and 5.6.7
 */
export function parseRetryAfter(text: string | undefined, now: number): number | undefined {
  const value = text?.trim() ?? '';
  // Very large numbers of seconds are valid too, and capped.
  if (/^\d{1,32}$/.test(value)) return Math.min(Number(value) * 1_000, MAX_RETRY_AFTER);
  const at = parseHttpDate(value);
  return at === undefined ? undefined : Math.min(Math.max(0, at - now), MAX_RETRY_AFTER);
}

/**
 * The preferred form and the two obsolete ones. Date.parse alone would also take `"Mon 5"`, and would read
 * an asctime date in the machine's time zone.
 */
function parseHttpDate(value: string): number | undefined {
  const isGmt =
    /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(value) ||
    /^[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT$/.test(value);
  const isAsctime = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/.test(value);
  if (!isGmt && !isAsctime) return undefined;
  const at = Date.parse(isGmt ? value : `${value} GMT`);
  return Number.isNaN(at) ? undefined : at;
}

/** One attempt: its result, and details that only stored deliveries and the caller of `send` get. */
export interface Attempt {
  readonly result: AttemptResult;
  /** When it began, in epoch milliseconds. */
  readonly at: number;
  /** Creates the receipt of the last request; absent if no request was made. */
  readonly receipt?: (() => WebhookReceipt) | undefined;
  /** The beginning of the answer's body; absent if there is none. */
  readonly answer?: string | undefined;
}

interface AttemptFacts {
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The method whose answer counts: POST if a HEAD was followed by one. */
  readonly method: 'HEAD' | 'POST';
  /** Milliseconds, a HEAD that was followed by a POST included. */
  readonly durationMs: number;
  /** Absent if there was no answer. */
  readonly statusCode?: number;
  /** Of the request whose answer counts; absent if no request was made, or if it was acknowledged. */
  readonly receipt?: WebhookReceipt;
}

/** The outcome of one attempt. */
export type AttemptResult =
  | (AttemptFacts & { readonly outcome: 'acknowledged'; readonly statusCode: number })
  | (AttemptFacts & {
      readonly outcome: 'failed';
      readonly reason: FailureReason;
      /** Milliseconds the receiver asks to wait, from its Retry-After. */
      readonly retryAfter?: number;
    })
  /** No later attempt can succeed. */
  | (AttemptFacts & { readonly outcome: 'refused'; readonly reason: FailureReason });

/** An attempt that was not acknowledged. */
export type UnsuccessfulAttempt = Exclude<AttemptResult, { outcome: 'acknowledged' }>;

/** The facts of an attempt besides its outcome. */
interface AttemptCircumstances extends Pick<AttemptResult, 'attempt' | 'method' | 'durationMs'> {
  /** Creates the receipt of the last request; absent if there was none. */
  readonly receipt: (() => WebhookReceipt) | undefined;
}

/** After these, no later attempt can succeed. */
const FINAL: ReadonlySet<FailureReason> = new Set(['destination_blocked', 'invalid_request']);

/**
 * Decides the outcome of an attempt.
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
