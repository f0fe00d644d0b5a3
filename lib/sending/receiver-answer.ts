import { blockedDestination } from '../egress/blocked-destination.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { AnswerBody } from './answer-excerpt.js';

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
  ETIMEDOUT: 'timeout',
  HPE_HEADER_OVERFLOW: 'response_too_large',
  UND_ERR_HEADERS_OVERFLOW: 'response_too_large',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'malformed_response',
  UND_ERR_SOCKET: 'connection_reset',
  EPROTO: 'tls',
  CERT_HAS_EXPIRED: 'tls',
  CERT_NOT_YET_VALID: 'tls',
  CERT_REVOKED: 'tls',
  CERT_UNTRUSTED: 'tls',
  CERT_REJECTED: 'tls',
  CERT_SIGNATURE_FAILURE: 'tls',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls',
  UNABLE_TO_GET_ISSUER_CERT: 'tls',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'tls',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'tls',
  HOSTNAME_MISMATCH: 'tls',
};

const FAMILIES: readonly (readonly [prefix: string, reason: FailureReason])[] = [
  ['HPE_', 'malformed_response'],
  ['ERR_TLS_', 'tls'],
  ['ERR_SSL_', 'tls'],
];

/** Errors that wrap each other are followed this far, so that a cycle ends. */
const MAX_CAUSES = 8;

/**
 * Names the failure of a request in one plain word.
 *
 * The error itself goes no further: axios hangs the whole request on it, and with it the token.
 */
export function transportFailure(error: unknown): FailureReason {
  if (blockedDestination(error) !== undefined) return 'destination_blocked';
  if (isOversize(error)) return 'response_too_large';
  for (const code of codesOf(error)) {
    const reason = REASONS[code] ?? FAMILIES.find(([prefix]) => code.startsWith(prefix))?.[1];
    if (reason !== undefined) return reason;
  }
  if (isUnparsable(error)) return 'malformed_response';
  return isCutOff(error) ? 'connection_reset' : 'network';
}

interface ErrorLike {
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
    // With several addresses to try, Node reports them together; the first one's fault is as good as any.
    next = Array.isArray(errors) ? errors[0] : cause;
  }
  return codes;
}

/** axios gives these two no code of their own. */
function isOversize(error: unknown): boolean {
  return messageOf(error).startsWith('maxContentLength size of ');
}

/** undici gives some of these a code, and all of them a name. */
function isUnparsable(error: unknown): boolean {
  const { name, cause } = (error ?? {}) as { name?: unknown; cause?: { name?: unknown } };
  return name === 'HTTPParserError' || cause?.name === 'HTTPParserError';
}

function isCutOff(error: unknown): boolean {
  return messageOf(error) === 'stream has been aborted';
}

function messageOf(error: unknown): string {
  const message = (error as ErrorLike | null | undefined)?.message;
  return typeof message === 'string' ? message : '';
}

/** What is read of a receiver's answer. */
export interface ReceiverAnswer {
  readonly statusCode: number;
  readonly retryAfter: string | undefined;
  readonly challenge: string | undefined;
  /** It may echo the token or the payload: for the delivery log alone, and not as it is. Absent where it is no octets. */
  readonly body: AnswerBody | undefined;
}

/** No answer, and why. */
export interface NoAnswer {
  readonly statusCode?: undefined;
  readonly reason: FailureReason;
  /** The receiver did answer, but the application's HttpService does not give the answer on. */
  readonly isUnreadable?: true;
}

/** HEAD is acknowledged by these only: any route for GET answers HEAD with 200, and proves nothing. */
const HEAD_ACKNOWLEDGED = new Set([202, 204]);

/** Statuses that say nothing about the event, but that this server, or one before it, cannot do HEAD. */
const HEAD_UNSUPPORTED = new Set([404, 405, 408, 411, 413, 414, 431, 494, 501]);

/** Statuses that say it too, unless a webhook receiver signs them with its challenge. */
const HEAD_UNSUPPORTED_UNLESS_CHALLENGED = new Set([400, 401]);

/** Tells whether the receiver took the event. */
export function isAcknowledged(
  method: 'HEAD' | 'POST',
  { statusCode }: ReceiverAnswer | NoAnswer,
): boolean {
  if (statusCode === undefined) return false;
  return method === 'HEAD' ? HEAD_ACKNOWLEDGED.has(statusCode) : isSuccess(statusCode);
}

/** Tells whether the answer to a HEAD, which was no acknowledgement, leaves open what a POST would get. */
export function isInconclusive(answer: ReceiverAnswer | NoAnswer): boolean {
  if (answer.statusCode === undefined) {
    if (answer.isUnreadable === true) return false;
    // Some servers close the connection on a long head, or answer HEAD with a body, which is not HTTP.
    return answer.reason === 'connection_reset' || answer.reason === 'malformed_response';
  }
  const { statusCode, challenge } = answer;
  if (isSuccess(statusCode) || isRedirect(statusCode)) return true;
  if (HEAD_UNSUPPORTED_UNLESS_CHALLENGED.has(statusCode)) return !isBearerChallenge(challenge);
  return HEAD_UNSUPPORTED.has(statusCode);
}

/**
 * Reads an answer as axios gives it, or as a test's stand-in does.
 *
 * @returns `undefined` for what is no answer; it never throws, whatever an interceptor has made of it
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
      body: bodyOf(data, read),
    };
  } catch {
    return undefined;
  }
}

/**
 * An error that brings an answer along is that answer: interceptors and stand-ins throw it. Not so with a
 * 2xx, which is an answer that was cut off.
 */
export function answerOfError(error: unknown): ReceiverAnswer | NoAnswer {
  try {
    const answer = readAnswer((error as { response?: unknown } | null | undefined)?.response);
    return answer !== undefined && answer.statusCode >= 300
      ? answer
      : { reason: transportFailure(error) };
  } catch {
    // Anything can be thrown, also what throws when it is looked at.
    return { reason: 'network' };
  }
}

type ReadHeader = 'retry-after' | 'www-authenticate' | 'content-type' | 'content-encoding';
const READ_HEADERS: ReadonlySet<string> = new Set<ReadHeader>([
  'retry-after',
  'www-authenticate',
  'content-type',
  'content-encoding',
]);

/** Of two that differ in case only, the first. */
function readHeaders(headers: unknown): Partial<Record<ReadHeader, string>> {
  const read: Partial<Record<ReadHeader, string>> = {};
  for (const [given, value] of Object.entries(headers ?? {})) {
    const name = given.toLowerCase() as ReadHeader;
    if (!READ_HEADERS.has(name) || read[name] !== undefined) continue;
    const values = (Array.isArray(value) ? value : [value]) as unknown[];
    read[name] = values.filter(isText).join(', ');
  }
  return read;
}

/** Octets as they were asked for, or a text, which an interceptor or a stand-in may give. */
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

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

function isRedirect(status: number): boolean {
  return status >= 300 && status < 400;
}

function isBearerChallenge(challenge: string | undefined): boolean {
  return challenge !== undefined && /(?:^|,\s*)bearer(?:\s|,|$)/i.test(challenge);
}
