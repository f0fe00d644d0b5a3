import type { ConfigurationFaults } from '../../options/configuration-faults.js';
import { answerOf, resolveRetrySchedule } from '../../queue/retry-schedule.js';
import type { RetryPolicy } from '../../sending/retry-policy.js';
import { DEFAULT_RETRY_SCHEDULE } from '../publisher.constants.js';
import type { WebhookRetryOptions } from './publisher-options.interface.js';

/** Checks and fills the retry options; faults are collected, not thrown. */
export function resolveRetryOptions(
  options: WebhookRetryOptions,
  faults: ConfigurationFaults,
): RetryPolicy {
  const { retryIf } = options;
  const schedule = resolveRetrySchedule(options, DEFAULT_RETRY_SCHEDULE, faults);
  faults.require(
    retryIf === undefined || typeof retryIf === 'function',
    'retryIf',
    'must be a function',
  );
  return {
    ...schedule,
    ...(typeof retryIf === 'function' && { retryIf: retryUnlessRefused(retryIf) }),
  };
}

function retryUnlessRefused(
  retryIf: NonNullable<WebhookRetryOptions['retryIf']>,
): NonNullable<RetryPolicy['retryIf']> {
  return (result) => answerOf(() => retryIf(result)) ?? true;
}
