import { WebhookTokenError } from '../errors/webhook.error.js';
import { rescued, type MaybePromise } from '../token/maybe-promise.js';
import type { TokenVerifier } from '../token/token-verifier.js';
import type { VerifiedWebhookToken } from '../token/webhook-claims.interface.js';
import type { RequestHeaders } from './incoming-webhook.js';

/** RFC 6750 section 2.1: scheme, spaces, b64token. Whether that is a webhook token is not asked here. */
const CREDENTIALS = /^bearer +([A-Za-z0-9._~+/-]+=*)$/i;
const SCHEME = /^bearer(?: |$)/i;
/** A second credential behind a comma: two headers that something on the way has joined. */
const JOINED = /,\s*bearer /i;

/**
 * Takes the token out of the Authorization header.
 *
 * @throws {@link WebhookTokenError} `missing_token` or `malformed_authorization`
 */
export function readBearerToken(headers: RequestHeaders): string {
  const values = headers.all('authorization');
  if (values.length > 1) throw malformed('the Authorization header is repeated');
  const value = values[0]?.trim();
  if (value !== undefined && JOINED.test(value))
    throw malformed('the Authorization header is repeated');
  if (value === undefined || !SCHEME.test(value)) {
    throw new WebhookTokenError('missing_token', 'the request has no Bearer token');
  }
  const token = CREDENTIALS.exec(value)?.[1];
  if (token === undefined) throw malformed('the Authorization header is not "Bearer <token>"');
  return token;
}

/** How nearly every sender spells the scheme. */
const BEARER = 'Bearer ';

/**
 * Takes the token out of the Authorization header and verifies it. A token that verifies has no character that
 * {@link readBearerToken} would find fault with, so that its look at every one of them is spared until
 * verification fails (benchmark `receive`, HEAD with 6 kB).
 *
 * @throws {@link WebhookTokenError} as {@link readBearerToken} does, and what the verifier throws
 */
export function verifyBearerToken(
  headers: RequestHeaders,
  tokens: TokenVerifier,
): MaybePromise<VerifiedWebhookToken> {
  const values = headers.all('authorization');
  const [value] = values;
  if (values.length > 1 || value?.startsWith(BEARER) !== true) {
    return tokens.verify(readBearerToken(headers));
  }
  const claimed = value.slice(BEARER.length);
  return rescued(
    () => tokens.verify(claimed),
    (error) => {
      const token = readBearerToken(headers);
      if (token === claimed) throw error;
      return tokens.verify(token);
    },
  );
}

function malformed(message: string): WebhookTokenError {
  return new WebhookTokenError('malformed_authorization', message);
}
