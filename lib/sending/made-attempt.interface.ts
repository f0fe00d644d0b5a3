import type { WebhookReceipt } from '../token/webhook-receipt.interface.js';
import type { AttemptResult } from './attempt-result.interface.js';

/** An attempt as the sender knows it: its result goes to everybody, the rest to the delivery log and to the caller of `send` alone. */
export interface MadeAttempt {
  readonly result: AttemptResult;
  /** When it began, in epoch milliseconds. */
  readonly at: number;
  /** Makes the receipt of the last request, for whoever asks; absent when none could be made. */
  readonly receipt?: () => WebhookReceipt;
  /** The beginning of the answer's body; absent where there is none, or no log to keep it. */
  readonly answer?: string;
}
