import { WebhookError } from './webhook.error.js';

/** Why a body was refused. */
export type WebhookPayloadErrorCode =
  /** A payload travels by HEAD or POST, and by nothing else. */
  | 'method_not_allowed'
  /** A body arrived, and nothing in the token authenticates it. */
  | 'hash_required'
  /** The body is not the one the token speaks of. */
  | 'hash_mismatch'
  /** The digest's algorithm or form is none of the six, or there is no body it could be checked on. */
  | 'hash_unsupported'
  /** The body is larger than the receiver takes. */
  | 'payload_too_large'
  /** A content coding or charset the receiver does not decode. */
  | 'unsupported_encoding'
  /** The body is authentic and does not parse, or its data does not validate. */
  | 'invalid_payload'
  /** The sender went away before the whole body had arrived. */
  | 'payload_incomplete'
  /** Something in the application read the body before the webhook guard ran. */
  | 'payload_consumed'
  /** A large body cannot be kept in a file: no room, no right to write there, or too many of them at once. */
  | 'spool_unavailable';

/** A payload was refused, on its way in or out. */
export class WebhookPayloadError extends WebhookError<WebhookPayloadErrorCode> {
  /** The methods the token's wire format has; only with `method_not_allowed`. */
  readonly methods?: readonly string[];

  constructor(
    code: WebhookPayloadErrorCode,
    message: string,
    options?: ErrorOptions & { methods?: readonly string[] },
  ) {
    super(code, message, options);
    if (options?.methods !== undefined) this.methods = options.methods;
  }
}
