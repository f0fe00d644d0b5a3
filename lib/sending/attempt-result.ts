import { parseRetryAfter } from '../clock/retry-after.js';
import { blockedDestination } from '../egress/egress-policy.js';
import { PROXY_FAILED } from '../egress/egress-proxy.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { FailureReason, SignedFacts } from '../queue/webhook-delivery.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import type { AnswerBody } from './answer-excerpt.js';

/** One attempt: its result, and details that only stored deliveries and the caller of `send` get. */
export interface Attempt {
  readonly result: AttemptResult;
  /** When it began, in epoch milliseconds. */
  readonly at: number;
  /** Creates the receipt of the last request; absent if no request was made, or if it had no token. */
  readonly receipt?: (() => WebhookReceipt) | undefined;
  /** What the token of the last request said; absent if no request was made, or if it had no token. */
  readonly signed?: SignedFacts | undefined;
  /** How the last request was signed; absent if no request was made. */
  readonly profile?: SentProfile | undefined;
  /** The beginning of the answer's body; absent if there is none. */
  readonly answer?: string | undefined;
}

interface AttemptFacts {
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The method whose answer counts: POST if a HEAD was followed by one. */
  readonly method: 'HEAD' | 'POST';
  /** Milliseconds, a HEAD that was followed by a POST included. */
  readonly durationMs: number;
  /** Absent if there was no answer. */
  readonly statusCode?: number;
}

export type AttemptResult =
  | (AttemptFacts & { readonly verdict: 'acknowledged'; readonly statusCode: number })
  | (AttemptFacts & {
      readonly verdict: 'failed';
      readonly reason: FailureReason;
      /** Milliseconds the receiver asks to wait, from its Retry-After. */
      readonly retryAfter?: number;
    })
  /** No later attempt can succeed. */
  | (AttemptFacts & { readonly verdict: 'refused'; readonly reason: FailureReason });

export type UnsuccessfulAttempt = Exclude<AttemptResult, { verdict: 'acknowledged' }>;

/** The parts of a receiver's answer that are used. */
export interface ReceiverAnswer {
  readonly statusCode: number;
  readonly retryAfter: string | undefined;
  readonly challenge: string | undefined;
  /** The code of a receiver of this package; see the table of its answers. */
  readonly code: string | undefined;
  /** May echo the token or the payload, so it is redacted, and stored with the attempt only. Absent if it is not bytes. */
  readonly body: AnswerBody | undefined;
}

export interface NoAnswer {
  readonly statusCode?: undefined;
  readonly reason: FailureReason;
}

/**
 * Reads an Axios response, or that of a fake in a test.
 *
 * @returns `undefined` if it is not a response; never throws, whatever an interceptor returned
 */
export function readAnswer(response: unknown): ReceiverAnswer | undefined {
  try {
    const { status, headers, data } = (response ?? {}) as Partial<Record<string, unknown>>;
    if (!Number.isInteger(status)) return undefined;
    const read = readHeaders(headers);
    return {
      statusCode: status as number,
      retryAfter: read['retry-after'],
      challenge: read['www-authenticate'],
      code: read['webhook-error'],
      body: bodyOf(data, read),
    };
  } catch {
    return undefined;
  }
}

/**
 * Reads the answer of an error that has one, as interceptors and fakes throw it. An error with a 2xx is a failure:
 * its answer was cut off.
 */
export function answerOfError(error: unknown): ReceiverAnswer | NoAnswer {
  try {
    const answer = readAnswer((error as { response?: unknown } | null | undefined)?.response);
    return answer !== undefined && answer.statusCode >= 300
      ? answer
      : { reason: transportFailure(error) };
  } catch {
    // Reading a thrown value may throw.
    return { reason: 'network' };
  }
}

const READ_HEADERS = [
  'retry-after',
  'www-authenticate',
  'webhook-error',
  'content-type',
  'content-encoding',
] as const;
type ReadHeader = (typeof READ_HEADERS)[number];

/** Of two headers that differ only in case, the first is used. */
function readHeaders(headers: unknown): Partial<Record<ReadHeader, string>> {
  const read: Partial<Record<ReadHeader, string>> = {};
  for (const [given, value] of Object.entries(headers ?? {})) {
    const name = given.toLowerCase() as ReadHeader;
    if (!READ_HEADERS.includes(name) || read[name] !== undefined) continue;
    const values = (Array.isArray(value) ? value : [value]) as unknown[];
    read[name] = values.filter(isText).join(', ');
  }
  return read;
}

/** Bytes, as requested, or a string, which an interceptor or a fake may return. */
function bodyOf(
  data: unknown,
  headers: Partial<Record<ReadHeader, string>>,
): AnswerBody | undefined {
  const octets = typeof data === 'string' ? Buffer.from(data) : data;
  if (!(octets instanceof Uint8Array)) return undefined;
  return {
    octets,
    contentType: headers['content-type'],
    contentEncoding: headers['content-encoding'],
  };
}

function isText(value: unknown): value is string | number {
  return typeof value === 'string' || typeof value === 'number';
}

/** Only 202 or 204 acknowledges a HEAD: any GET route answers HEAD with 200. */
const HEAD_ACKNOWLEDGED = new Set([202, 204]);

/** Statuses that say nothing about the event, only that the server or a proxy does not support HEAD. */
const HEAD_UNSUPPORTED = new Set([404, 405, 408, 411, 413, 414, 431, 494, 501]);

/** The same, unless the answer has the Bearer challenge of a webhook receiver. */
const HEAD_UNSUPPORTED_UNLESS_CHALLENGED = new Set([400, 401]);

/** Codes of a receiver whose handler has run, whatever status it chose: a POST would run it again. */
const HANDLER_FAILURES = new Set(['handler_failed', 'validation_failed', 'application_refused']);

export function isAcknowledged(
  method: 'HEAD' | 'POST',
  { statusCode }: ReceiverAnswer | NoAnswer,
): boolean {
  if (statusCode === undefined) return false;
  return method === 'HEAD' ? HEAD_ACKNOWLEDGED.has(statusCode) : isSuccess(statusCode);
}

/** Whether a POST might succeed although the HEAD was not acknowledged. */
export function isInconclusive(answer: ReceiverAnswer | NoAnswer): boolean {
  if (answer.statusCode === undefined) {
    // Some servers close the connection on a long head, or wrongly answer HEAD with a body.
    return answer.reason === 'connection_reset' || answer.reason === 'malformed_response';
  }
  const { statusCode, challenge, code } = answer;
  if (code !== undefined && HANDLER_FAILURES.has(code)) return false;
  if (isSuccess(statusCode) || isRedirect(statusCode)) return true;
  if (HEAD_UNSUPPORTED_UNLESS_CHALLENGED.has(statusCode)) return !isBearerChallenge(challenge);
  return HEAD_UNSUPPORTED.has(statusCode);
}

/** After these, no later attempt can succeed. */
const FINAL: ReadonlySet<FailureReason> = new Set(['destination_blocked', 'invalid_request']);

/**
 * Judges an attempt by the answer.
 *
 * @param now - epoch milliseconds, for a Retry-After that is a date
 */
export function attemptResult(
  facts: Pick<AttemptFacts, 'attempt' | 'method' | 'durationMs'>,
  answer: ReceiverAnswer | NoAnswer,
  now: number,
): AttemptResult {
  const { statusCode } = answer;
  if (statusCode !== undefined && isAcknowledged(facts.method, answer)) {
    return { ...facts, verdict: 'acknowledged', statusCode };
  }
  if (statusCode === undefined) {
    const { reason } = answer;
    return { ...facts, verdict: FINAL.has(reason) ? 'refused' : 'failed', reason };
  }
  const retryAfter = parseRetryAfter(answer.retryAfter, now);
  return {
    ...facts,
    verdict: 'failed',
    statusCode,
    reason: `http_${statusCode}`,
    ...(retryAfter !== undefined && { retryAfter }),
  };
}

const CONFLICT = 409;

/** Failures on this side: no key, a key service or an egress proxy that is down, too many open files, our own shutdown. */
const LOCAL_FAILURES: ReadonlySet<FailureReason> = new Set([
  'aborted',
  'signing_failed',
  'no_signing_key',
  'proxy_failed',
  'too_many_open_files',
]);

/** Whether a result says anything about the endpoint. A local failure does not; nor does 409, an endpoint at work. */
export function concernsEndpoint(result: AttemptResult): boolean {
  if (result.verdict === 'acknowledged') return true;
  return (
    result.verdict === 'failed' &&
    !LOCAL_FAILURES.has(result.reason) &&
    result.statusCode !== CONFLICT
  );
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

function isRedirect(status: number): boolean {
  return status >= 300 && status < 400;
}

function isBearerChallenge(challenge: string | undefined): boolean {
  return challenge !== undefined && /(?:^|,\s*)bearer(?:\s|,|$)/i.test(challenge);
}

const REASONS: Readonly<Record<string, FailureReason>> = {
  ENOTFOUND: 'dns',
  ENODATA: 'dns',
  ESERVFAIL: 'dns',
  EAI_AGAIN: 'dns',
  EAI_FAIL: 'dns',
  EAI_NODATA: 'dns',
  EAI_NONAME: 'dns',
  ECONNREFUSED: 'connection_refused',
  ECONNRESET: 'connection_reset',
  EPIPE: 'connection_reset',
  EMFILE: 'too_many_open_files',
  ENFILE: 'too_many_open_files',
  ETIMEDOUT: 'timeout',
  HPE_HEADER_OVERFLOW: 'response_too_large',
  EPROTO: 'tls',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls',
  INVALID_CA: 'tls',
  INVALID_PURPOSE: 'tls',
  PATH_LENGTH_EXCEEDED: 'tls',
  HOSTNAME_MISMATCH: 'tls',
  // Node's code of any other certificate error.
  UNSPECIFIED: 'tls',
  [PROXY_FAILED]: 'proxy_failed',
};

const FAMILIES: readonly (readonly [prefix: string, reason: FailureReason])[] = [
  ['HPE_', 'malformed_response'],
  ['ERR_TLS_', 'tls'],
  ['ERR_SSL_', 'tls'],
  // Node's codes of certificate errors; those without a common prefix are above.
  ['CERT_', 'tls'],
  ['CRL_', 'tls'],
  ['ERROR_IN_C', 'tls'],
  ['UNABLE_TO_', 'tls'],
];

/** How many nested causes are followed, so that a cycle ends. */
const MAX_CAUSES = 8;

/**
 * Maps a request's error to a failure reason.
 *
 * The error itself is dropped: axios attaches the whole request to it, including the token.
 */
export function transportFailure(error: unknown): FailureReason {
  if (blockedDestination(error) !== undefined) return 'destination_blocked';
  if (isOversize(error)) return 'response_too_large';
  for (const code of codesOf(error)) {
    const reason = REASONS[code] ?? FAMILIES.find(([prefix]) => code.startsWith(prefix))?.[1];
    if (reason !== undefined) return reason;
  }
  if (isAxiosTimeout(error)) return 'timeout';
  return isCutOff(error) ? 'connection_reset' : 'network';
}

interface ErrorLike {
  readonly isAxiosError?: unknown;
  /** Of a system error. */
  readonly syscall?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
  readonly cause?: unknown;
  readonly errors?: unknown;
}

function codesOf(error: unknown): string[] {
  const codes: string[] = [];
  let next = error;
  for (let depth = 0; depth < MAX_CAUSES && typeof next === 'object' && next !== null; depth++) {
    const { code, cause, errors } = next as ErrorLike;
    if (typeof code === 'string') codes.push(code);
    // If several addresses failed, Node reports all errors; the first one is used.
    next = Array.isArray(errors) ? errors[0] : cause;
  }
  return codes;
}

/** Of the setting `timeout`, which an interceptor may set. A system error with this code has a cause. */
function isAxiosTimeout(error: unknown): boolean {
  const { code, cause } = (error ?? {}) as ErrorLike;
  return code === 'ECONNABORTED' && cause === undefined;
}

/** axios has no code for these two. */
function isOversize(error: unknown): boolean {
  return messageOf(error).startsWith('maxContentLength size of ');
}

function isCutOff(error: unknown): boolean {
  return messageOf(error) === 'stream has been aborted';
}

function messageOf(error: unknown): string {
  const message = (error as ErrorLike | null | undefined)?.message;
  return typeof message === 'string' ? message : '';
}

/** Errors that a later attempt may not meet: each is retried on schedule, so that the operator has time to correct its cause. */
const NO_KEY = [
  'no_signing_key',
  // A key provider that is unavailable has no key for now.
  'keys_unavailable',
  'sealed_secret_unreadable',
  'endpoint_unreadable',
  // The provider's current key does not fit the wire format; a later one may.
  'invalid_token',
] as const;

/**
 * Maps the error of a request that could not be signed to a failure reason.
 *
 * @returns `undefined` for other errors
 */
export function signingFailure(error: unknown): FailureReason | undefined {
  if (NO_KEY.some((code) => isWebhookError(error, code))) return 'no_signing_key';
  if (!isWebhookError(error, 'signing_failed')) return undefined;
  return error.cause === 'aborted' ? 'aborted' : 'signing_failed';
}
