import { type Channel, channel } from 'node:diagnostics_channel';
import {
  type Operation,
  OperationChannels,
  type RequestTracing,
  type TraceContext,
} from '../diagnostics/operation.js';
import { errorType } from '../errors/webhook.error.js';
import { originOf, type OutgoingDelivery } from '../queue/webhook-delivery.js';
import type { Attempt } from '../sending/attempt-result.js';
import type { Endpoint } from '../sending/endpoint.js';

interface PublishingFacts {
  readonly event: string;
  readonly eventId: string;
  readonly tenant: string | undefined;
}

interface PublishingOutcome {
  /** Deliveries of the event, also those that were recorded before. */
  readonly deliveries: number;
  /** Whether all of them were recorded before. */
  readonly duplicate: boolean;
  /** Code or class name of the error, if nothing was recorded. */
  readonly error?: string;
}

/** Published when an event was recorded, or could not be. It contains no payload and no URL. */
export interface WebhookPublishedMessage extends PublishingFacts, PublishingOutcome {
  readonly durationMs: number;
}

interface AttemptingFacts {
  readonly deliveryId: string;
  readonly event: string;
  readonly eventId: string;
  readonly tenant: string | undefined;
  /** Absent for a URL that the caller of `send` passed. */
  readonly endpointId: string | undefined;
  /** Scheme, host and port of the endpoint's URL: its path and query may hold a credential. */
  readonly origin: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Milliseconds from the publish to this attempt. */
  readonly ageMs: number;
}

interface AttemptingOutcome {
  /** `refused`: no later attempt can succeed. `error`: it failed on this side, and is repeated. */
  readonly outcome: 'acknowledged' | 'failed' | 'refused' | 'error';
  readonly method?: 'HEAD' | 'POST';
  /** Absent if no answer arrived. */
  readonly statusCode?: number | undefined;
  /** Why the attempt failed: a failure reason, or with `error` its code or class name. */
  readonly reason?: string;
}

/** Published when an attempt has ended. It contains no token, no payload and no URL. */
export interface WebhookAttemptedMessage extends AttemptingFacts, AttemptingOutcome {
  readonly durationMs: number;
}

/** Name of the diagnostics channel of {@link WebhookPublishedMessage}. */
export const WEBHOOK_PUBLISHED_CHANNEL = 'nestjs-webhook-token:published';
/** Name of the diagnostics channel of {@link WebhookAttemptedMessage}. */
export const WEBHOOK_ATTEMPTED_CHANNEL = 'nestjs-webhook-token:attempted';
/** Name of the diagnostics channel of delivery outcomes; its messages are those of `WebhookDeliveryEvents`. */
export const WEBHOOK_DELIVERY_CHANNEL = 'nestjs-webhook-token:delivery';

export type PublishingOperation = Operation<PublishingFacts, PublishingOutcome>;

export const publishing = new OperationChannels<PublishingFacts, PublishingOutcome>(
  'nestjs-webhook-token:publishing',
  WEBHOOK_PUBLISHED_CHANNEL,
);

/** A running attempt; `cause` is the trace of the publish, unless this is a later round. */
export type AttemptingOperation = Operation<
  AttemptingFacts & { readonly cause?: TraceContext; readonly round: number },
  AttemptingOutcome
>;

export const attempting = new OperationChannels<AttemptingOperation['facts'], AttemptingOutcome>(
  'nestjs-webhook-token:attempting',
  WEBHOOK_ATTEMPTED_CHANNEL,
);

export const deliveryEvents: Channel = channel(WEBHOOK_DELIVERY_CHANNEL);

/**
 * Makes an attempt as an observed operation.
 *
 * @param ageMs - milliseconds since the publish
 */
export function observeAttempt(
  { id, event, eventId, tenant, endpointId, trace, round = 1 }: OutgoingDelivery,
  { url }: Endpoint,
  { attempt, ageMs }: { readonly attempt: number; readonly ageMs: number },
  make: (tracing: RequestTracing | undefined) => Promise<Attempt>,
): Promise<Attempt> {
  if (!attempting.isObserved) return make(undefined);
  const makeFacts = (): AttemptingOperation['facts'] => ({
    deliveryId: id,
    event,
    eventId,
    tenant,
    endpointId,
    origin: originOf(url) ?? 'invalid URL',
    attempt,
    ageMs,
    round,
    ...(trace !== undefined && { cause: trace }),
  });
  return attempting.observe(makeFacts, make, {
    of: ({ result }) => ({
      outcome: result.verdict,
      method: result.method,
      statusCode: result.statusCode,
      ...(result.verdict !== 'acknowledged' && { reason: result.reason }),
    }),
    failed: (error) => ({ outcome: 'error', reason: errorType(error) }),
  });
}
