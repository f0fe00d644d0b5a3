import type { SenderChallenge } from './webhook-scheme.js';

/** The `WWW-Authenticate` challenge of a 4xx, see RFC 6750, section 3. */
type BearerChallenge = 'plain' | 'invalid_request' | 'invalid_token' | 'insufficient_scope';

/** One row: the receiver's answer in a situation. */
export interface WebhookAnswerRow {
  readonly status: number;
  /** The stable code; absent on success, and if the application refused the request. */
  readonly code?: string;
  readonly challenge?: BearerChallenge;
  readonly headers?: Readonly<Record<string, string>>;
  /** Describes the situation: the `title` of the problem, and the row's meaning in the documentation. */
  readonly title: string;
}

/** Seconds after which a sender may try again. */
const SOON = { 'Retry-After': '1' };
const LATER = { 'Retry-After': '5' };

/**
 * Every answer of a receiver, by situation. A situation is named after its code, except for `validation_failed` and
 * `shutting_down`, which share a code with another row.
 */
export const WEBHOOK_ANSWERS = {
  processed: { status: 204, title: 'The event was handled' },
  queued: { status: 202, title: 'The event was recorded and will be handled' },
  duplicate: {
    status: 204,
    headers: { 'Webhook-Duplicate': 'true' },
    title: 'The event was handled before',
  },
  challenge: { status: 200, title: 'The sender checked that the receiver has its secret' },
  missing_token: {
    status: 401,
    code: 'missing_token',
    challenge: 'plain',
    title: 'The request has no Bearer token',
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
    title: 'The signature is not valid',
  },
  unknown_key: {
    status: 401,
    code: 'unknown_key',
    challenge: 'invalid_token',
    title: 'The issuer has no valid key for this token',
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
    title: 'The lifetime of the token exceeds the limit of the receiver',
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
    title: 'A claim has an invalid value',
  },
  replayed: {
    status: 401,
    code: 'replayed',
    challenge: 'invalid_token',
    title: 'The id was used before: for other content, or on a receiver that rejects copies',
  },
  event_forbidden: {
    status: 403,
    code: 'event_forbidden',
    challenge: 'insufficient_scope',
    title: 'The issuer may not send this event',
  },
  missing_signature: {
    status: 401,
    code: 'missing_signature',
    title: 'The request has no signature of the sender',
  },
  malformed_signature: {
    status: 401,
    code: 'malformed_signature',
    title: 'A header of the signature is repeated or malformed',
  },
  invalid_signature: {
    status: 401,
    code: 'invalid_signature',
    title: 'No signature matches the body and a secret of the sender',
  },
  timestamp_out_of_tolerance: {
    status: 401,
    code: 'timestamp_out_of_tolerance',
    title: 'The signed time is too far from the clock of the receiver',
  },
  hash_required: {
    status: 400,
    code: 'hash_required',
    challenge: 'invalid_request',
    title: 'The token has no hash of the body',
  },
  hash_mismatch: {
    status: 400,
    code: 'hash_mismatch',
    challenge: 'invalid_request',
    title: 'The body does not match the hash in the token',
  },
  hash_unsupported: {
    status: 400,
    code: 'hash_unsupported',
    challenge: 'invalid_request',
    title:
      'The hash cannot be checked: its algorithm or form is unknown, or the request has no body',
  },
  invalid_payload: {
    status: 400,
    code: 'invalid_payload',
    title: 'The body is authentic, but is not valid JSON within the limits',
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
    title: 'The method is not HEAD or POST, or the wire format does not have it',
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
    title: 'The lease ended before the handler could commit the event',
  },
  payload_too_large: {
    status: 413,
    code: 'payload_too_large',
    title: 'The body is larger than the receiver accepts',
  },
  unsupported_encoding: {
    status: 415,
    code: 'unsupported_encoding',
    title: 'The content encoding, or the charset of the JSON, is not supported',
  },
  unsupported_content_type: {
    status: 415,
    code: 'unsupported_content_type',
    title: 'The receiver does not accept this content type from the issuer',
  },
  validation_failed: {
    status: 422,
    code: 'invalid_payload',
    title: 'The data failed validation',
  },
  event_unhandled: {
    status: 422,
    code: 'event_unhandled',
    title: 'No handler matches the event, and the receiver rejects such events',
  },
  token_too_large: {
    status: 431,
    code: 'token_too_large',
    title: 'The token is longer than 16384 bytes',
  },
  handler_failed: {
    status: 500,
    code: 'handler_failed',
    title: 'A handler of the event failed',
  },
  application_refused: {
    status: 403,
    title: 'The application refused the request',
  },
  batch_unsupported: {
    status: 500,
    code: 'batch_unsupported',
    title: 'The request has several events, and only a mounted path can handle them',
  },
  payload_consumed: {
    status: 500,
    code: 'payload_consumed',
    title: 'The application read the body before the webhook guard',
  },
  store_unavailable: {
    status: 503,
    code: 'store_unavailable',
    headers: LATER,
    title: 'The replay store or the queue of received events is full or unavailable',
  },
  spool_unavailable: {
    status: 503,
    code: 'spool_unavailable',
    headers: LATER,
    title: 'A large body cannot be stored now, for example because the disk is full',
  },
  keys_unavailable: {
    status: 503,
    code: 'keys_unavailable',
    headers: LATER,
    title: 'The keys of the issuer are unavailable',
  },
  shutting_down: {
    status: 503,
    code: 'store_unavailable',
    headers: LATER,
    title: 'The application is shutting down',
  },
} as const satisfies Readonly<Record<string, WebhookAnswerRow>>;

export type WebhookSituation = keyof typeof WEBHOOK_ANSWERS;

/** The stable codes of a receiver's answers. */
export type WebhookAnswerCode = Extract<
  (typeof WEBHOOK_ANSWERS)[WebhookSituation],
  { code: string }
>['code'];

/** Body of a refusal, RFC 9457. */
interface WebhookProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code?: string | undefined;
  /** One message per failed constraint. */
  readonly errors?: readonly string[] | undefined;
}

/** The answer to a request, made from the answer table and independent of the adapter. */
export interface WebhookAnswer {
  readonly situation: WebhookSituation;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Absent on success. The code is in the headers too, since an answer to HEAD has no body. */
  readonly problem?: WebhookProblem;
  /** JSON that is no problem: the answer to a sender's challenge, or an answer in a sender's own form. */
  readonly json?: Readonly<Record<string, unknown>> | undefined;
  /** Plain text: the answer to a sender's challenge. */
  readonly text?: string | undefined;
}

/** The content of an answer, which an answer to HEAD does not have. */
export function contentOf({
  problem,
  json,
  text,
}: WebhookAnswer): { readonly type: string; readonly body: string } | undefined {
  if (problem !== undefined) {
    return { type: 'application/problem+json', body: JSON.stringify(problem) };
  }
  if (json !== undefined) return { type: 'application/json', body: JSON.stringify(json) };
  return text === undefined ? undefined : { type: 'text/plain', body: text };
}

const REALM = 'Bearer realm="webhooks"';

/** A cached answer would acknowledge an event that never arrived. */
const NO_STORE = { 'Cache-Control': 'no-store' } as const;

/** The answer to an event that was handled, queued, or handled before. */
export function acknowledge(situation: 'processed' | 'queued' | 'duplicate'): WebhookAnswer {
  const row: WebhookAnswerRow = WEBHOOK_ANSWERS[situation];
  return { situation, status: row.status, headers: { ...NO_STORE, ...row.headers } };
}

export function answerChallenge(challenge: SenderChallenge): WebhookAnswer {
  const { challengeAnswer: json, challengeText: text, challengeHeaders } = challenge;
  const { status } = WEBHOOK_ANSWERS.challenge;
  const headers = { ...NO_STORE, ...challengeHeaders };
  return { situation: 'challenge', status, headers, json, text };
}

export function refuse(
  situation: WebhookSituation,
  more: {
    readonly detail?: string | undefined;
    readonly status?: number | undefined;
    readonly errors?: readonly string[] | undefined;
    /** Methods in place of the row's. */
    readonly allow?: string | undefined;
  } = {},
): WebhookAnswer {
  const row: WebhookAnswerRow = WEBHOOK_ANSWERS[situation];
  const status = more.status ?? row.status;
  const detail = more.detail ?? row.title;
  const headers: Record<string, string> = { ...NO_STORE, ...row.headers };
  if (more.allow !== undefined) headers['Allow'] = more.allow;
  if (row.code !== undefined) headers['Webhook-Error'] = row.code;
  if (row.challenge !== undefined) {
    headers['WWW-Authenticate'] = challenge(row.challenge, detail, row.code);
  }
  const problem = {
    type: 'about:blank',
    title: row.title,
    status,
    detail,
    code: row.code,
    errors: more.errors,
  };
  return { situation, status, headers, problem };
}

function challenge(kind: BearerChallenge, detail: string, code: string | undefined): string {
  if (kind === 'plain') return REALM;
  // RFC 6750 allows printable ASCII without quotes and backslashes.
  const description = detail.replace(/[^\x20-\x21\x23-\x5b\x5d-\x7e]/g, "'");
  return `${REALM}, error="${kind}", error_description="${description}", code="${code}"`;
}
