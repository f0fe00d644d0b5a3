/** Why an attempt failed. Plain words, safe to log and to store: never a part of request or answer. */
export type FailureReason =
  /** The attempt's deadline passed. */
  | 'timeout'
  /** The host's name did not resolve. */
  | 'dns'
  | 'connection_refused'
  | 'connection_reset'
  /** The certificate does not hold, or the handshake failed. */
  | 'tls'
  /** The answer's body, or its head, is larger than a webhook's answer can be. */
  | 'response_too_large'
  /** The answer is not HTTP. */
  | 'malformed_response'
  /** The egress guard refuses the destination. */
  | 'destination_blocked'
  /** The request cannot be made, as a HEAD that cannot carry the payload. */
  | 'invalid_request'
  /** The endpoint is not configured any more. */
  | 'unknown_endpoint'
  /** The endpoint was disabled: by configuration, or because it answered 410. */
  | 'endpoint_disabled'
  /** The signer failed, gave what is no signature, or took longer than the attempt may. */
  | 'signing_failed'
  /** No key may be signed with at this time: a gap between two windows, or a provider that cannot give any. */
  | 'no_signing_key'
  /** The application shut down while the attempt ran. */
  | 'aborted'
  /** A handler of an event that was acknowledged before it was handled has failed. */
  | 'handler_failed'
  /** No handler of this process takes an event that was acknowledged before it was handled. */
  | 'event_unhandled'
  /** The delivery log never learnt the outcome, and the queue no longer knows the delivery: it may or may not have arrived. */
  | 'outcome_unknown'
  /** Any other failure between here and the receiver. */
  | 'network'
  /** The receiver answered with this status. */
  | `http_${number}`;
