import { WebhookError } from './webhook.error.js';

/** Why nothing could be signed. */
export type WebhookSigningErrorCode =
  /** The signer threw, or what it gave is no signature of its algorithm. */
  | 'signing_failed'
  /** No key may be signed with at this time: their windows leave a gap, or a provider gives none. */
  | 'no_signing_key';

/** A token could not be signed now; later it may. */
export class WebhookSigningError extends WebhookError<WebhookSigningErrorCode> {
  /**
   * Name, code, message and stack, but not the cause: it comes from the application's signer or provider, and
   * its text may hold anything. Whoever wants it reads `cause`.
   *
   * @internal
   */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const stack = (this.stack ?? this.message).replace(/^Error\b/, this.name);
    return `${stack} { code: '${this.code}' }`;
  }
}
