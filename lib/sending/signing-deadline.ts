import { isWebhookError, WebhookSigningError } from '../errors/webhook.error.js';
import type { FailureReason } from '../queue/failure-reason.js';
import { isThenable, type MaybePromise } from '../token/maybe-promise.js';

/**
 * Waits for a signature until the attempt ends. A later signature is dropped.
 *
 * @param signal - aborted with the reason `timeout`, or `aborted` at shutdown
 * @throws {@link WebhookSigningError} `signing_failed`, whose cause is the signal's reason
 */
export function within<T>(signal: AbortSignal, signed: MaybePromise<T>): MaybePromise<T> {
  return isThenable(signed) ? race(signal, signed) : signed;
}

async function race<T>(signal: AbortSignal, signed: Promise<T>): Promise<T> {
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    stop = () => reject(tooLate(signal));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([signed, late]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/**
 * The failure reason for an error of the signer.
 *
 * @returns `undefined` for other errors
 */
export function signingFailure(error: unknown): FailureReason | undefined {
  // A key provider that is unavailable has no key for now.
  if (isWebhookError(error, 'no_signing_key') || isWebhookError(error, 'keys_unavailable')) {
    return 'no_signing_key';
  }
  // Retried until the operator corrects the sealing keys, so that no event is lost.
  if (isWebhookError(error, 'sealed_secret_unreadable')) return 'no_signing_key';
  if (isWebhookError(error, 'endpoint_unreadable')) return 'no_signing_key';
  // The provider's current key does not fit the wire format; a later one may.
  if (isWebhookError(error, 'invalid_token')) return 'no_signing_key';
  if (!isWebhookError(error, 'signing_failed')) return undefined;
  return error.cause === 'aborted' ? 'aborted' : 'signing_failed';
}

function tooLate({ reason }: AbortSignal): WebhookSigningError {
  return new WebhookSigningError(
    'signing_failed',
    'the signer took longer than the timeout of the attempt; raise the timeout of the endpoint, or make the signer faster.',
    { cause: reason },
  );
}
