import { isWebhookError, WebhookSigningError } from '../errors/webhook.error.js';
import type { FailureReason } from '../queue/failure-reason.js';
import { isThenable, type MaybePromise } from '../token/maybe-promise.js';

/**
 * Waits for a signature as long as the attempt lasts. What comes later is dropped.
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
 * The failure that an error of signing is for an attempt.
 *
 * @returns `undefined` for errors about other things
 */
export function signingFailure(error: unknown): FailureReason | undefined {
  // A provider of keys that cannot be asked is, for signing, one that gives none.
  if (isWebhookError(error, 'no_signing_key') || isWebhookError(error, 'keys_unavailable')) {
    return 'no_signing_key';
  }
  // So is an endpoint whose secret cannot be opened: somebody corrects the sealing keys, and nothing was lost.
  if (isWebhookError(error, 'sealed_secret_unreadable')) return 'no_signing_key';
  if (isWebhookError(error, 'endpoint_unreadable')) return 'no_signing_key';
  // The provider's key of the hour does not fit the wire format: another one may.
  if (isWebhookError(error, 'invalid_token')) return 'no_signing_key';
  if (!isWebhookError(error, 'signing_failed')) return undefined;
  return error.cause === 'aborted' ? 'aborted' : 'signing_failed';
}

function tooLate({ reason }: AbortSignal): WebhookSigningError {
  return new WebhookSigningError(
    'signing_failed',
    'the signer took longer than the attempt may: raise the timeout of the endpoint, or ask why it is slow.',
    { cause: reason },
  );
}
