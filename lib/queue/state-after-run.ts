import { waitAfterThrow } from './retry-schedule.js';
import type { DeliveryRun, DeliveryStatus, FailureReason } from './webhook-delivery.js';

/** What a run changes of a delivery. */
interface RunState {
  readonly status: DeliveryStatus;
  /** Attempts of this round. */
  readonly attempts: number;
  /** How often in a row the handler threw. */
  readonly throws: number;
  readonly reason?: FailureReason | undefined;
  /** When it is due again, in epoch milliseconds; while it is pending. */
  readonly due?: number | undefined;
  /** Whether it keeps its ordering key although it is dead. */
  readonly blocksKey?: boolean | undefined;
}

/**
 * The state of a pending delivery after a run.
 *
 * @param before - with the reason of the last failed attempt, which a `defer` without one keeps
 * @param run - `undefined` if the handler threw
 * @param now - epoch milliseconds
 */
export function stateAfterRun(
  { attempts, throws, reason }: Pick<RunState, 'attempts' | 'throws' | 'reason'>,
  run: DeliveryRun | undefined,
  now: number,
): RunState {
  const pending = { status: 'pending', attempts, throws: 0 } as const;
  if (run === undefined) {
    return { ...pending, throws: throws + 1, reason, due: now + waitAfterThrow(throws) };
  }
  const { outcome } = run;
  switch (outcome.type) {
    case 'delivered':
      return { status: 'delivered', attempts: attempts + 1, throws: 0 };
    case 'dead':
      return {
        status: 'dead',
        attempts: outcome.attempts,
        throws: 0,
        reason: outcome.reason,
        blocksKey: outcome.blocksKey,
      };
    case 'retry':
      return { ...pending, attempts: attempts + 1, reason: outcome.reason, due: outcome.at };
    case 'defer':
      return { ...pending, reason: outcome.reason ?? reason, due: outcome.at };
  }
}
