import { isWebhookError, WebhookSigningError } from '../errors/webhook.error.js';
import type { FailureReason } from '../queue/webhook-delivery.js';

/** Errors that a later attempt may not meet: each is retried until the operator has corrected its cause, so no event is lost. */
const NO_KEY = [
  'no_signing_key',
  // A key provider that is unavailable has no key for now.
  'keys_unavailable',
  'sealed_secret_unreadable',
  'endpoint_unreadable',
  // The provider's current key does not fit the wire format; a later one may.
  'invalid_token',
] as const;

/** @returns `undefined` for other errors */
export function signingFailure(error: unknown): FailureReason | undefined {
  if (NO_KEY.some((code) => isWebhookError(error, code))) return 'no_signing_key';
  if (!isWebhookError(error, 'signing_failed')) return undefined;
  return error.cause === 'aborted' ? 'aborted' : 'signing_failed';
}

/**
 * Waits for a signature until the attempt ends; a later one is dropped.
 *
 * @throws {@link WebhookSigningError} `signing_failed` if the signal ends the wait; its cause is the signal's reason
 */
export async function untilAborted<T>(value: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    stop = () => reject(tooLate(signal.reason));
  });
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop);
  try {
    return await Promise.race([value, late]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function tooLate(cause: unknown): WebhookSigningError {
  return new WebhookSigningError(
    'signing_failed',
    'the signer took longer than the timeout of the attempt; raise the timeout of the endpoint, or make the signer faster.',
    { cause },
  );
}
