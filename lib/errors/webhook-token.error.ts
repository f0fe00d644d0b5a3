import { WebhookError } from './webhook.error.js';

/** Why a token was refused. */
export type WebhookTokenErrorCode =
  /** No credentials, or another scheme than Bearer. */
  | 'missing_token'
  /** The Authorization header is repeated, comma-joined or not `Bearer <token>`. */
  | 'malformed_authorization'
  /** Longer than 16384 bytes. */
  | 'token_too_large'
  /** Not three canonical base64url parts, or a header that is not allowed. */
  | 'invalid_token'
  /** The signature does not hold under any key of the issuer. */
  | 'bad_signature'
  /** The issuer is known, the `kid` is not. */
  | 'unknown_key'
  /** `iss` is nobody this verifier trusts. */
  | 'wrong_issuer'
  /** `aud` names somebody else, or the token has one and none is configured. */
  | 'wrong_audience'
  | 'token_expired'
  /** `nbf` or `iat` lies in the future, beyond the tolerance. */
  | 'token_not_yet_valid'
  /** `exp - iat` is longer than the verifier allows. */
  | 'token_too_old'
  /** The issuer may not send this event. */
  | 'event_forbidden'
  | 'missing_claim'
  | 'invalid_claim';

/** A token was refused, or could not be made. */
export class WebhookTokenError extends WebhookError<WebhookTokenErrorCode> {
  /** The claim at fault, named only once the signature has held. */
  readonly claim?: string;

  constructor(
    code: WebhookTokenErrorCode,
    message: string,
    options?: ErrorOptions & { claim?: string },
  ) {
    super(code, message, options);
    if (options?.claim !== undefined) this.claim = options.claim;
  }
}
