import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookReceipt } from '../token/webhook-receipt.interface.js';

interface AttemptFacts {
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The method whose answer counts: POST where a HEAD was followed by one. */
  readonly method: 'HEAD' | 'POST';
  /** Milliseconds, a HEAD that was followed by a POST included. */
  readonly durationMs: number;
  /** Absent when no answer came. */
  readonly statusCode?: number;
  /** Of the request whose answer counts; absent when none could be made, and where it was acknowledged. */
  readonly receipt?: WebhookReceipt;
}

/** How one attempt ended. */
export type AttemptResult =
  | (AttemptFacts & { readonly outcome: 'acknowledged'; readonly statusCode: number })
  | (AttemptFacts & {
      readonly outcome: 'failed';
      readonly reason: FailureReason;
      /** Milliseconds the receiver asks to wait, from its Retry-After. */
      readonly retryAfter?: number;
    })
  /** No later attempt can do better. */
  | (AttemptFacts & { readonly outcome: 'refused'; readonly reason: FailureReason });

/** An attempt that was not acknowledged. */
export type UnsuccessfulAttempt = Exclude<AttemptResult, { outcome: 'acknowledged' }>;
