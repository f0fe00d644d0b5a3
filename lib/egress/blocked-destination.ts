import { type WebhookDestinationBlockedError, isWebhookError } from '../errors/webhook.error.js';

/**
 * Finds the egress guard's error in an error of an HTTP client: the error itself, one of its causes, or one
 * of the errors of an `AggregateError`.
 */
export function blockedDestination(error: unknown): WebhookDestinationBlockedError | undefined {
  const open: unknown[] = [error];
  const seen = new Set<unknown>();
  while (open.length > 0) {
    const next = open.pop();
    if (typeof next !== 'object' || next === null || seen.has(next)) continue;
    seen.add(next);
    if (isWebhookError(next, 'destination_blocked')) return next as WebhookDestinationBlockedError;
    // By shape, since clients wrap errors in their own classes, possibly of another realm.
    const { cause, errors } = next as { cause?: unknown; errors?: unknown };
    open.push(cause, ...(Array.isArray(errors) ? (errors as unknown[]) : []));
  }
  return undefined;
}
