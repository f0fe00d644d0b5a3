import { WebhookTokenError } from '../../errors/webhook-token.error.js';
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

function malformed(message: string): WebhookTokenError {
  return new WebhookTokenError('malformed_authorization', message);
}
