import { blockedDestination } from '../egress/egress-policy.js';
import { PROXY_FAILED } from '../egress/egress-proxy.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { FailureReason } from '../queue/webhook-delivery.js';

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
  if (isAxiosTimeout(error)) return 'timeout';
  return isCutOff(error) ? 'connection_reset' : 'network';
}

/** Whether neither axios nor the network caused an error: code of the application threw it. */
export function isForeign(error: unknown): boolean {
  try {
    const { isAxiosError, syscall } = (error ?? {}) as ErrorLike;
    return isAxiosError !== true && syscall === undefined && transportFailure(error) === 'network';
  } catch {
    // Reading a thrown value may throw.
    return true;
  }
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

/** Errors that a later attempt may not meet: each is retried until the operator has corrected its cause, so no event is lost. */
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
