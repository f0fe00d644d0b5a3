import { WebhookTokenError } from '../errors/webhook.error.js';
import { MAX_TOKEN_BYTES } from './webhook-token.constants.js';

/** A token taken apart at its dots; nothing in it is trusted yet. */
export interface CompactToken {
  /** Header, dot, payload: what is signed. */
  readonly signingInput: string;
  readonly header: string;
  readonly payload: string;
  readonly signature: string;
}

/**
 * Takes a compact token apart.
 *
 * @throws {@link WebhookTokenError} `token_too_large` or `invalid_token`
 */
export function parseCompactToken(token: unknown): CompactToken {
  if (typeof token !== 'string') throw invalidToken();
  if (token.length > MAX_TOKEN_BYTES) throw tokenTooLarge();
  const first = token.indexOf('.');
  const second = token.indexOf('.', first + 1);
  if (first <= 0 || second <= first + 1 || second === token.length - 1) throw invalidToken();
  if (token.indexOf('.', second + 1) !== -1) throw invalidToken();
  return {
    signingInput: token.slice(0, second),
    header: token.slice(0, first),
    payload: token.slice(first + 1, second),
    signature: token.slice(second + 1),
  };
}

/** The one thing that is said of a token whose signature has not held. */
export function invalidToken(): WebhookTokenError {
  return new WebhookTokenError('invalid_token', 'the token is invalid');
}

/** Said on both ends of the way. */
export function tokenTooLarge(): WebhookTokenError {
  return new WebhookTokenError(
    'token_too_large',
    `the token is longer than ${MAX_TOKEN_BYTES} bytes: send the data in the body of a POST`,
  );
}
