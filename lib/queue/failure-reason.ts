/** Why an attempt failed. Safe to log and to store: contains no part of the request or the response. */
export type FailureReason =
  /** The attempt's deadline passed. */
  | 'timeout'
  /** The host name did not resolve. */
  | 'dns'
  | 'connection_refused'
  | 'connection_reset'
  /** The certificate is invalid, or the handshake failed. */
  | 'tls'
  /** The head or body of the response exceeds the limit. */
  | 'response_too_large'
  /** The response is not HTTP. */
  | 'malformed_response'
  /** The egress policy refuses the destination. */
  | 'destination_blocked'
  /** The request cannot be built, for example because a HEAD cannot carry the payload. */
  | 'invalid_request'
  /** The endpoint no longer exists. */
  | 'unknown_endpoint'
  /** The endpoint is disabled: by configuration, or because it answered 410. */
  | 'endpoint_disabled'
  /** No attempt was made: the endpoint is paused, and the delivery waits until it is resumed. */
  | 'endpoint_paused'
  /** The signer failed, returned no valid signature, or exceeded the attempt's timeout. */
  | 'signing_failed'
  /** No signing key is valid now, or the key provider failed. */
  | 'no_signing_key'
  /** The application shut down while the attempt ran. */
  | 'aborted'
  /** A handler of a queued received event failed. */
  | 'handler_failed'
  /** No handler of this process matches a queued received event. */
  | 'event_unhandled'
  /** Any other network failure. */
  | 'network'
  /** The receiver answered with this status. */
  | `http_${number}`;
