import { type Observable, Subject } from 'rxjs';
import type { FailureReason } from '../queue/failure-reason.js';

/** The kinds of delivery events. */
export const WEBHOOK_DELIVERY_EVENTS = [
  /** An attempt was acknowledged. */
  'delivered',
  /** An attempt failed, and there will be another. */
  'retry-scheduled',
  /** The last attempt failed, or there can be none: the delivery is dead. */
  'exhausted',
  /** The egress guard refuses the destination: the delivery is dead. */
  'destination-blocked',
  /** The endpoint receives nothing more: it answered 410, or has failed for too long. */
  'endpoint-disabled',
  /** The endpoint keeps failing; its deliveries are paused. */
  'circuit-opened',
  /** The endpoint works again. */
  'circuit-closed',
] as const;

/** A kind of delivery event. */
export type WebhookDeliveryEventType = (typeof WEBHOOK_DELIVERY_EVENTS)[number];

/** Something that happened to a delivery or to its endpoint. It contains no token, secret, payload or URL. */
export interface WebhookDeliveryEvent {
  readonly type: WebhookDeliveryEventType;
  /** By the publisher's clock. */
  readonly at: Date;
  readonly deliveryId: string;
  /** The event's id, the same for every endpoint. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** Absent for a URL that the caller of `send` passed. */
  readonly endpointId?: string;
  readonly tenant?: string;
  /** Attempts made so far. */
  readonly attempts: number;
  /** Absent if no answer arrived. */
  readonly statusCode?: number;
  /** Why the attempt failed. */
  readonly reason?: FailureReason;
  /** With `retry-scheduled`. */
  readonly nextAttemptAt?: Date;
}

/**
 * Delivery events as a stream: for metrics, alerts and dashboards. To react to some kinds of events, use
 * `@OnWebhookDelivery()`.
 *
 * The stream covers the attempts of this process and keeps no history. Catch errors in your subscriber: rxjs reports them as
 * uncaught exceptions.
 */
export class WebhookDeliveryEvents {
  private readonly subject = new Subject<WebhookDeliveryEvent>();

  /** Never errors; completes at shutdown. */
  readonly events$: Observable<WebhookDeliveryEvent> = this.subject.asObservable();

  /** @hidden */
  get hasSubscribers(): boolean {
    return this.subject.observed;
  }

  /** @hidden */
  emit(event: WebhookDeliveryEvent): void {
    this.subject.next(event);
  }

  /** @hidden */
  close(): void {
    this.subject.complete();
  }
}
