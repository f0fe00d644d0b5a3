/** Injection token of the {@link ResolvedPublisherOptions}. */
export const PUBLISHER_OPTIONS = Symbol('nestjs-webhook-token/publisher-options');

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/**
 * Milliseconds before the first, second, … attempt: 10 attempts over 75 h 35 min.
 *
 * @see Standard Webhooks, "Deliverability and reliability"
 */
export const DEFAULT_RETRY_SCHEDULE: readonly number[] = [
  0,
  5 * SECOND,
  5 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  14 * HOUR,
  20 * HOUR,
  24 * HOUR,
];

/** Milliseconds for DNS, connection, TLS, request and answer of one attempt. */
export const DEFAULT_ATTEMPT_TIMEOUT = 15 * SECOND;

/** Milliseconds that a shutdown waits for deliveries. */
export const DEFAULT_SHUTDOWN_TIMEOUT = 10 * SECOND;

/**
 * Bytes of a request's whole head up to which HEAD is chosen: below the 8 kB that most servers and
 * proxies read by default, with room for what a proxy adds.
 */
export const DEFAULT_MAX_HEAD_BYTES = 7_168;

/** A receiver cannot put a delivery off by more than this many milliseconds. */
export const MAX_RETRY_AFTER = 24 * HOUR;

/** Least milliseconds after 429 and after a timeout: the receiver is short of time already. */
export const OVERLOAD_WAIT = MINUTE;

/** Milliseconds after 409 without Retry-After: another copy is being handled, and is done soon. */
export const CONFLICT_WAIT = 5 * SECOND;

/** Milliseconds an endpoint's other deliveries wait after 503 without Retry-After. */
export const UNAVAILABLE_PAUSE = 5 * SECOND;

/** Where the publisher's public keys are served. */
export const DEFAULT_JWKS_PATH = '/.well-known/webhook-keys';

/** Milliseconds for which receivers and caches may keep them. */
export const DEFAULT_JWKS_MAX_AGE = 5 * MINUTE;

/** Bytes of an answer that are read; a receiver has nothing to tell beyond its status. */
export const MAX_ANSWER_BYTES = 65_536;

/** Milliseconds of nothing but failures after which an endpoint is disabled: 5 days. */
export const DEFAULT_DISABLE_AFTER = 5 * 24 * HOUR;

/** Metadata of a method: what it reacts to. */
export const DELIVERY_REACTIONS = Symbol('nestjs-webhook-token:delivery-reactions');
