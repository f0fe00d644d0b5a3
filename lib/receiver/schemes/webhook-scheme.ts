import type { IncomingWebhook, RequestHeaders } from '../../request/incoming-webhook.js';
import type { RequestBody } from '../../request/request-body.js';
import type { ResolvedReceiver } from '../receiver-options.interface.js';
import type { WebhookEventParts } from '../webhook-event.js';

/** What a scheme reads from a request whose signature and body it has verified. */
export interface VerifiedRequest {
  /** Names the event, its id, time and data. */
  readonly event: Omit<WebhookEventParts, 'receiver' | 'signal' | 'internals' | 'run'>;
  /** Removed by the caller, also if the event is refused later. */
  readonly body: RequestBody;
  /** Identifies name and data: the same id with other content is refused. */
  readonly fingerprint: string;
}

/** What a request says of itself, in the form that it must have. */
export interface ClaimedEvent {
  readonly event?: string | undefined;
  readonly id?: string | undefined;
  readonly issuer?: string | undefined;
  readonly kid?: string | undefined;
  /** ISO 8601. */
  readonly issuedAt?: string | undefined;
  readonly expiresAt?: string | undefined;
}

/** Who signs requests, and how: the part of receiving that differs from sender to sender. */
export interface WebhookScheme {
  /** Whether the headers alone show that a trusted sender signed the request. Never rejects. */
  isSigned(headers: RequestHeaders, receiver: ResolvedReceiver): Promise<boolean>;

  /**
   * Verifies a request: its credentials first, so that a sender without a key cannot make the receiver read or parse a body.
   *
   * @throws {@link WebhookTokenError}, {@link WebhookPayloadError}
   */
  verify(incoming: IncomingWebhook, receiver: ResolvedReceiver): Promise<VerifiedRequest>;

  /** Reads what a refused request claims, for logs: it is not verified. Never throws. */
  claims(incoming: IncomingWebhook): ClaimedEvent;
}
