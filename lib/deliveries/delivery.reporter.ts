import { type Channel, channel } from 'node:diagnostics_channel';
import { DAY } from '../clock/duration.js';
import {
  type Operation,
  OperationChannels,
  type RequestTracing,
  type TraceContext,
} from '../diagnostics/operation.js';
import type { RegisteredEndpoint } from '../endpoints/endpoint.registry.js';
import { errorName, errorType } from '../errors/webhook.error.js';
import {
  originOf,
  type OutgoingDelivery,
  type ReceivedDelivery,
} from '../queue/webhook-delivery.js';
import type { AttemptResult, Attempt } from '../sending/attempt-result.js';
import type { EndpointDisabled, Endpoint } from '../sending/endpoint.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type {
  WebhookDeliveryEvent,
  WebhookDeliveryEvents,
  WebhookDeliveryEventType,
} from './webhook-delivery.events.js';
import type { DelivererOptions, OutgoingRun } from './webhook.deliverer.js';

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

/** Reports deliveries to the log and to {@link WebhookDeliveryEvents}. Nothing it does can change an outcome. */
export class DeliveryReporter {
  private readonly logger = new PublisherLog();

  constructor(
    private readonly events: WebhookDeliveryEvents,
    private readonly options: DelivererOptions,
  ) {}

  /** Reports the end of a run. @param label - of the endpoint */
  ended({ delivery, outcome, attempt }: OutgoingRun, label: string): void {
    const { id, event } = delivery;
    const facts = { attempts: attempt?.attempt ?? 0, statusCode: attempt?.statusCode };
    switch (outcome.type) {
      case 'delivered':
        return this.emit('delivered', delivery, facts);
      case 'retry': {
        const { at, reason } = outcome;
        this.logger.debug(
          () =>
            `Delivery ${id} of "${event}" to ${label}: attempt ${facts.attempts} failed (${reason}); next attempt at ${new Date(at).toISOString()}`,
        );
        const nextAttemptAt = new Date(at);
        return this.emit('retry-scheduled', delivery, { ...facts, reason, nextAttemptAt });
      }
      case 'dead': {
        const { attempts, reason } = outcome;
        this.logger.warn(
          () =>
            `Delivery ${id} of "${event}" to ${label} is dead after ${attempts} attempts: ${reason}`,
        );
        const type = reason === 'destination_blocked' ? 'destination-blocked' : 'exhausted';
        return this.emit(type, delivery, { ...facts, attempts, reason });
      }
      case 'defer':
        return undefined;
    }
  }

  circuitChanged(
    change: 'opened' | 'closed',
    { label }: RegisteredEndpoint,
    delivery: OutgoingDelivery,
    { attempt: attempts, statusCode }: AttemptResult,
  ): void {
    if (change === 'opened') {
      this.logger.warn(
        () => `${label} keeps failing; its deliveries are paused until a trial succeeds.`,
      );
    }
    this.emit(`circuit-${change}`, delivery, { attempts, statusCode });
  }

  endpointDisabled(
    { label, stored }: RegisteredEndpoint,
    { reason }: EndpointDisabled,
    delivery: OutgoingDelivery,
    { attempt: attempts, statusCode }: AttemptResult,
  ): void {
    const days = Math.floor(this.options.disableAfter / DAY);
    const why =
      reason === 'gone' ? 'answered 410 Gone' : `has failed every attempt for ${days} days`;
    const remedy =
      stored === undefined
        ? 'remove it from the configuration, or restart to try it again'
        : 'enable it once it works again';
    this.logger.warn(() => `${label} ${why} and was disabled; ${remedy}.`);
    this.emit('endpoint-disabled', delivery, { attempts, statusCode });
  }

  /** Logs only the first failure of an outage. */
  lookupFailed({ id }: OutgoingDelivery, error: unknown): void {
    const name = errorName(error);
    this.logger.once(
      'error',
      'lookup',
      () =>
        `Delivery ${id}: its endpoint could not be looked up (${name}); deliveries are retried until the endpoint store answers.`,
    );
  }

  lookupSucceeded(): void {
    this.logger.recovered('lookup');
  }

  attemptFailed({ id }: OutgoingDelivery, error: unknown): void {
    // The name only: the message may quote the token or the payload.
    const name = errorName(error);
    this.logger.error(
      () => `Delivery ${id}: attempt failed before the request was sent (${name}); retrying.`,
    );
  }

  listenerFailed({ delivery }: OutgoingRun, error: unknown): void {
    const name = errorName(error);
    this.logger.error(() => `Delivery ${delivery.id}: a listener of its outcome failed (${name}).`);
  }

  queueShared({ id }: ReceivedDelivery): void {
    this.logger.error(
      () =>
        `The publisher's queue holds the received event ${id}; give the queues of publisher and receiver different names.`,
    );
  }

  private emit(
    type: WebhookDeliveryEventType,
    { id, eventId, event, endpointId, tenant }: OutgoingDelivery,
    facts: Pick<WebhookDeliveryEvent, 'attempts' | 'statusCode' | 'reason' | 'nextAttemptAt'>,
  ): void {
    if (!this.events.hasSubscribers && !deliveryEvents.hasSubscribers) return;
    const emitted: WebhookDeliveryEvent = {
      type,
      at: new Date(this.options.clock.now()),
      deliveryId: id,
      eventId,
      event,
      endpointId,
      tenant,
      ...facts,
    };
    deliveryEvents.publish(emitted);
    try {
      this.events.emit(emitted);
    } catch {
      // rxjs reports errors of subscribers asynchronously.
    }
  }
}
