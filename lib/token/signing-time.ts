import { WebhookSigningError } from '../errors/webhook-signing.error.js';
import type { KeyWindow } from './keys/key-window.js';

/** Whether a key may be signed with at a time, in seconds; exactly, as the clock is the signer's own. */
export function maySign(window: KeyWindow | undefined, now: number): boolean {
  return window === undefined || (window.opens <= now && now < window.closes);
}

/** Said when a token is wanted at a time for which there is no key. */
export function noSigningKey(): WebhookSigningError {
  return new WebhookSigningError(
    'no_signing_key',
    'no key may be signed with now: give one whose notBefore has come and whose notAfter has not.',
  );
}
