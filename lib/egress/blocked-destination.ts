import { type WebhookDestinationBlockedError, isWebhookError } from '../errors/webhook.error.js';

/**
 * Finds the refusal of the egress guard in what an HTTP client threw: the error itself, one of its
 * causes, or one of the attempts an `AggregateError` gathers.
 */
export function blockedDestination(error: unknown): WebhookDestinationBlockedError | undefined {
  const open: unknown[] = [error];
  const seen = new Set<unknown>();
  while (open.length > 0) {
    const next = open.pop();
    if (typeof next !== 'object' || next === null || seen.has(next)) continue;
    seen.add(next);
    if (isWebhookError(next, 'destination_blocked')) return next as WebhookDestinationBlockedError;
    // By shape: clients wrap errors in classes of their own, from realms of their own.
    const { cause, errors } = next as { cause?: unknown; errors?: unknown };
    open.push(cause, ...(Array.isArray(errors) ? (errors as unknown[]) : []));
  }
  return undefined;
}
