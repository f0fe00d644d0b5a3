import { WebhookPayloadError } from '../errors/webhook.error.js';

/** The refusal of a body that no digest authenticates. */
export function hashRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'the request has a body and the token has no webhook.hash that authenticates it',
  );
}

/** The refusal of a POST whose token does not refer to its body, as swt-draft-00 does even where it is empty. */
export function bodyReferenceRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'a POST of swt-draft-00 needs webhook.data = { hash, hashAlg?, size } for its body, an empty one too',
  );
}

/** The refusal of a body whose digest or size is another one. */
export function hashMismatch(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_mismatch',
    'the body is not the one the token was issued for',
  );
}

/** The refusal of a body that is not declared to have the size the token names. */
export function sizeMismatch(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_mismatch',
    'the request must declare, by Content-Length, the size that the token names for its body',
  );
}

/** The refusal of a digest that comes with HEAD. */
export function hashOnHead(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_unsupported',
    'a HEAD request has no body that a hash could be checked on: send POST, or inline data',
  );
}

/** The refusal of a digest over nothing. */
export function hashOnEmptyBody(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_unsupported',
    'the body is empty, and then this wire format has no webhook.hash: leave it out',
  );
}
