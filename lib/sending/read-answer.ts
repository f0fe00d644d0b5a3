import { blockedDestination } from '../egress/egress-policy.js';
import { PROXY_FAILED } from '../egress/egress-proxy.js';
import type { FailureReason } from '../queue/webhook-delivery.js';
import type { AnswerBody } from './answer-excerpt.js';
import type { NoAnswer, ReceiverAnswer } from './attempt-result.js';

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

type ReadHeader = 'retry-after' | 'www-authenticate' | 'content-type' | 'content-encoding';
const READ_HEADERS: ReadonlySet<string> = new Set<ReadHeader>([
  'retry-after',
  'www-authenticate',
  'content-type',
  'content-encoding',
]);

/** Of two headers that differ only in case, the first is used. */
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
  [PROXY_FAILED]: 'proxy_failed',
};

const FAMILIES: readonly (readonly [prefix: string, reason: FailureReason])[] = [
  ['HPE_', 'malformed_response'],
  ['ERR_TLS_', 'tls'],
  ['ERR_SSL_', 'tls'],
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
    // If several addresses failed, Node reports all errors; the first one is used.
    next = Array.isArray(errors) ? errors[0] : cause;
  }
  return codes;
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
