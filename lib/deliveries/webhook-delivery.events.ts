import { type Observable, Subject } from 'rxjs';
import type { FailureReason } from '../queue/failure-reason.js';

/** What can be told of deliveries. */
export const WEBHOOK_DELIVERY_EVENTS = [
  /** An attempt was acknowledged. */
  'delivered',
  /** An attempt failed, and there will be another. */
  'retry-scheduled',
  /** The last attempt failed, or there can be none: the delivery is dead. */
  'exhausted',
  /** The egress guard refuses the destination: the delivery is dead. */
  'destination-blocked',
  /** The endpoint gets nothing any more: it answered 410, or has failed for too long. */
  'endpoint-disabled',
  /** The endpoint keeps failing and is given a rest. */
  'circuit-opened',
  /** The endpoint works again. */
  'circuit-closed',
] as const;

/** Name of a thing that can be told of deliveries. */
export type WebhookDeliveryEventType = (typeof WEBHOOK_DELIVERY_EVENTS)[number];

/** What happened to a delivery, or to its endpoint. It holds no token, no secret, no payload and no URL. */
export interface WebhookDeliveryEvent {
  readonly type: WebhookDeliveryEventType;
  /** When, by the publisher's clock. */
  readonly at: Date;
  readonly deliveryId: string;
  /** The event's id, the same at every endpoint. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** Absent for a URL that the caller named. */
  readonly endpointId?: string;
  readonly tenant?: string;
  /** Attempts that were made. */
  readonly attempts: number;
  /** Of the answer, where one came. */
  readonly statusCode?: number;
  /** Why it failed. */
  readonly reason?: FailureReason;
  /** With `retry-scheduled`. */
  readonly nextAttemptAt?: Date;
}

/**
 * What happens to deliveries, as a stream: for metrics, alerts and dashboards. To react to single kinds of
 * events, `@OnWebhookDelivery()` is shorter.
 *
 * Only this process's attempts are told of. It is told as it happens and not kept: who subscribes later
 * has missed it. What a subscriber throws is rxjs's to report, as an uncaught exception: catch it there.
 */
export class WebhookDeliveryEvents {
  private readonly subject = new Subject<WebhookDeliveryEvent>();

  /** Never ends by an error; completes at shutdown. */
  readonly events$: Observable<WebhookDeliveryEvent> = this.subject.asObservable();

  /** @internal Whether anybody would hear it. */
  get areHeard(): boolean {
    return this.subject.observed;
  }

  /** @internal */
  tell(event: WebhookDeliveryEvent): void {
    this.subject.next(event);
  }

  /** @internal */
  close(): void {
    this.subject.complete();
  }
}
