import { WebhookTokenError } from '../errors/webhook.error.js';
import type { RequestHeaders } from './incoming-webhook.js';

/** Scheme, spaces and b64token, as RFC 6750, section 2.1, defines them; the verifier checks the token itself. */
const CREDENTIALS = /^bearer +([A-Za-z0-9._~+/-]+=*)$/i;
const SCHEME = /^bearer(?: |$)/i;
/** A second credential after a comma: a proxy has joined two headers. */
const JOINED_CREDENTIALS = /,\s*bearer /i;

/**
 * Reads the token from the Authorization header.
 *
 * @throws {@link WebhookTokenError} `missing_token` or `malformed_authorization`
 */
export function readBearerToken(headers: RequestHeaders): string {
  const values = headers.all('authorization');
  if (values.length > 1) throw malformed('the Authorization header is repeated');
  const value = values[0]?.trim();
  if (value !== undefined && JOINED_CREDENTIALS.test(value))
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
