import type { AttemptResult } from './attempt-result.interface.js';

/** An attempt as the sender knows it: its result goes to everybody, the rest to the delivery log alone. */
export interface MadeAttempt {
  readonly result: AttemptResult;
  /** When it began, in epoch milliseconds. */
  readonly at: number;
  /** The beginning of the answer's body; absent where there is none, or no log to keep it. */
  readonly answer?: string;
}
