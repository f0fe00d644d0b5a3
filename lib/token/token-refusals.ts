import {
  WebhookPayloadError,
  WebhookTokenError,
  type WebhookTokenErrorCode,
} from '../errors/webhook.error.js';
import { MAX_TOKEN_BYTES } from './webhook-token.constants.js';

/** The only thing a message says about a token whose signature is not verified; the code names the step. */
export function invalidToken(code: WebhookTokenErrorCode = 'invalid_token'): WebhookTokenError {
  return new WebhookTokenError(code, 'the token is invalid');
}

/** Thrown by the receiver and, so that its sender learns of it first, by the signer. */
export function tokenTooLarge(): WebhookTokenError {
  return new WebhookTokenError(
    'token_too_large',
    `the token is longer than ${MAX_TOKEN_BYTES} bytes: send the data in the body of a POST`,
  );
}

/** A claim of an authenticated token, or of one about to be signed, has a wrong value. */
export function invalidClaim(claim: string, message: string): WebhookTokenError {
  return new WebhookTokenError('invalid_claim', message, { claim });
}

/** A body without a digest in the token. */
export function hashRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'the request has a body and the token has no webhook.hash that authenticates it',
  );
}

/** A POST of swt-draft-00 without a reference to its body; that profile requires one even if the body is empty. */
export function bodyReferenceRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'a POST of swt-draft-00 needs webhook.data = { hash, hashAlg?, size } for its body, even if it is empty',
  );
}

/** A body with another digest or another size. */
export function hashMismatch(): WebhookPayloadError {
  return new WebhookPayloadError('hash_mismatch', 'the body does not match the hash in the token');
}

/** A Content-Length other than the size in the token. */
export function sizeMismatch(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_mismatch',
    'the request must declare, by Content-Length, the size that the token names for its body',
  );
}

/** A digest in the token of a HEAD. */
export function hashOnHead(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_unsupported',
    'a HEAD request has no body for a hash to match: send POST, or inline data',
  );
}

/** A digest for an empty body, in a profile that has none. */
export function hashOnEmptyBody(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_unsupported',
    'the body is empty, and this wire format allows webhook.hash only with a body: leave it out',
  );
}
