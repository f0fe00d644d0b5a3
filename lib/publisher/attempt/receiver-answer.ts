import type { FailureReason } from './attempt-result.interface.js';

/** What is kept of a receiver's answer. Nothing of its body: it may echo the token or the payload. */
export interface ReceiverAnswer {
  readonly statusCode: number;
  readonly retryAfter: string | undefined;
  readonly challenge: string | undefined;
}

/** No answer, and why. */
export interface NoAnswer {
  readonly statusCode?: undefined;
  readonly reason: FailureReason;
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
    // Some servers close the connection on a long head, or answer HEAD with a body, which is not HTTP.
    return answer.reason === 'connection_reset' || answer.reason === 'malformed_response';
  }
  const { statusCode, challenge } = answer;
  if (isSuccess(statusCode) || isRedirect(statusCode)) return true;
  if (HEAD_UNSUPPORTED_UNLESS_CHALLENGED.has(statusCode)) return !isBearerChallenge(challenge);
  return HEAD_UNSUPPORTED.has(statusCode);
}

/** Reads an answer as axios gives it, or as a test's stand-in does. */
export function readAnswer(response: unknown): ReceiverAnswer | undefined {
  const { status, headers } = (response ?? {}) as { status?: unknown; headers?: unknown };
  if (typeof status !== 'number') return undefined;
  return {
    statusCode: status,
    retryAfter: headerOf(headers, 'retry-after'),
    challenge: headerOf(headers, 'www-authenticate'),
  };
}

function headerOf(headers: unknown, wanted: string): string | undefined {
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (name.toLowerCase() !== wanted) continue;
    return Array.isArray(value) ? value.join(', ') : String(value);
  }
  return undefined;
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
