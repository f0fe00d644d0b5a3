/** How a 4xx challenges the sender, RFC 6750 section 3. */
export type BearerChallenge = 'plain' | 'invalid_request' | 'invalid_token' | 'insufficient_scope';

/** One row: what the receiver answers in a situation. */
export interface WebhookAnswerRow {
  readonly status: number;
  /** The stable code; absent where nothing went wrong. */
  readonly code?: string;
  readonly challenge?: BearerChallenge;
  readonly headers?: Readonly<Record<string, string>>;
  /** The situation in words: `title` of the problem, and the row of the documentation. */
  readonly title: string;
}

/** Seconds after which a sender may try again, where the receiver cannot know better. */
const SOON = { 'Retry-After': '1' };
const LATER = { 'Retry-After': '5' };

/**
 * Every answer a receiver gives, by situation: the one table in the code. Where a situation has a
 * code, its name is that code, but for the two rows that share one with another.
 */
export const WEBHOOK_ANSWERS = {
  processed: { status: 204, title: 'The event was handled' },
  queued: { status: 202, title: 'The event was recorded, and will be handled' },
  duplicate: {
    status: 204,
    headers: { 'Webhook-Duplicate': 'true' },
    title: 'The event was handled before',
  },
  missing_token: {
    status: 401,
    code: 'missing_token',
    challenge: 'plain',
    title: 'No Bearer token',
  },
  malformed_authorization: {
    status: 400,
    code: 'malformed_authorization',
    challenge: 'invalid_request',
    title: 'The Authorization header is repeated, comma-joined or malformed',
  },
  invalid_token: {
    status: 401,
    code: 'invalid_token',
    challenge: 'invalid_token',
    title: 'The token is malformed, or its header is not allowed',
  },
  bad_signature: {
    status: 401,
    code: 'bad_signature',
    challenge: 'invalid_token',
    title: 'The signature does not hold',
  },
  unknown_key: {
    status: 401,
    code: 'unknown_key',
    challenge: 'invalid_token',
    title: 'The issuer has no such key',
  },
  wrong_issuer: {
    status: 401,
    code: 'wrong_issuer',
    challenge: 'invalid_token',
    title: 'The issuer is not trusted',
  },
  wrong_audience: {
    status: 401,
    code: 'wrong_audience',
    challenge: 'invalid_token',
    title: 'The token is meant for another audience',
  },
  token_expired: {
    status: 401,
    code: 'token_expired',
    challenge: 'invalid_token',
    title: 'The token has expired',
  },
  token_not_yet_valid: {
    status: 401,
    code: 'token_not_yet_valid',
    challenge: 'invalid_token',
    title: 'The token is not valid yet',
  },
  token_too_old: {
    status: 401,
    code: 'token_too_old',
    challenge: 'invalid_token',
    title: 'The token lives longer than allowed',
  },
  missing_claim: {
    status: 401,
    code: 'missing_claim',
    challenge: 'invalid_token',
    title: 'A required claim is missing',
  },
  invalid_claim: {
    status: 401,
    code: 'invalid_claim',
    challenge: 'invalid_token',
    title: 'A claim has a wrong value',
  },
  replayed: {
    status: 401,
    code: 'replayed',
    challenge: 'invalid_token',
    title: 'The id was used before, with other content or where copies are refused',
  },
  event_forbidden: {
    status: 403,
    code: 'event_forbidden',
    challenge: 'insufficient_scope',
    title: 'The issuer may not send this event',
  },
  hash_required: {
    status: 400,
    code: 'hash_required',
    challenge: 'invalid_request',
    title: 'The body is not authenticated by a hash',
  },
  hash_mismatch: {
    status: 400,
    code: 'hash_mismatch',
    challenge: 'invalid_request',
    title: 'The body is not the one the token was issued for',
  },
  hash_unsupported: {
    status: 400,
    code: 'hash_unsupported',
    challenge: 'invalid_request',
    title: 'The hash cannot be checked: unknown algorithm or form, or no body it could be of',
  },
  invalid_payload: {
    status: 400,
    code: 'invalid_payload',
    title: 'The authentic body does not parse',
  },
  payload_incomplete: {
    status: 400,
    code: 'payload_incomplete',
    title: 'The body ended before it was complete',
  },
  method_not_allowed: {
    status: 405,
    code: 'method_not_allowed',
    headers: { Allow: 'HEAD, POST' },
    title: 'Another method than HEAD or POST, or one the wire format does not have',
  },
  in_progress: {
    status: 409,
    code: 'in_progress',
    headers: SOON,
    title: 'The same event is being handled now',
  },
  lease_lost: {
    status: 409,
    code: 'lease_lost',
    headers: SOON,
    title: 'The handler was too slow to commit the event, and has rolled it back',
  },
  payload_too_large: {
    status: 413,
    code: 'payload_too_large',
    title: 'The body is larger than the receiver takes',
  },
  unsupported_encoding: {
    status: 415,
    code: 'unsupported_encoding',
    title: 'A content encoding, or a charset of JSON, that is not decoded',
  },
  validation_failed: {
    status: 422,
    code: 'invalid_payload',
    title: 'The data does not validate',
  },
  event_unhandled: {
    status: 422,
    code: 'event_unhandled',
    title: 'No handler for the event, and the receiver was told to refuse it',
  },
  token_too_large: {
    status: 431,
    code: 'token_too_large',
    title: 'The token is longer than 16384 bytes',
  },
  handler_failed: {
    status: 500,
    code: 'handler_failed',
    title: 'A handler failed; the status of its HttpException wins',
  },
  application_refused: {
    status: 403,
    title: 'The application refused the request; the status of its HttpException wins',
  },
  payload_consumed: {
    status: 500,
    code: 'payload_consumed',
    title: 'Something in the application read the body before the guard ran',
  },
  store_unavailable: {
    status: 503,
    code: 'store_unavailable',
    headers: LATER,
    title: 'The replay store, or the queue of events, is full or cannot be reached',
  },
  spool_unavailable: {
    status: 503,
    code: 'spool_unavailable',
    headers: LATER,
    title: 'A large body cannot be kept now: no room for it on the disk',
  },
  keys_unavailable: {
    status: 503,
    code: 'keys_unavailable',
    headers: LATER,
    title: 'The keys of the issuer cannot be had now',
  },
  shutting_down: {
    status: 503,
    code: 'store_unavailable',
    headers: LATER,
    title: 'The application is shutting down',
  },
} as const satisfies Readonly<Record<string, WebhookAnswerRow>>;

/** A row's name. */
export type WebhookSituation = keyof typeof WEBHOOK_ANSWERS;

/** The stable codes a receiver answers with. */
export type WebhookAnswerCode = Extract<
  (typeof WEBHOOK_ANSWERS)[WebhookSituation],
  { code: string }
>['code'];
