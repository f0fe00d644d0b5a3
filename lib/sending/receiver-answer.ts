import type { FailureReason } from '../queue/failure-reason.js';
import type { AnswerBody } from './answer-excerpt.js';
import { transportFailure } from './transport-failure.js';

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
