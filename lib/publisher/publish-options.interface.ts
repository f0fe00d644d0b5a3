import type { Duration } from '../clock/duration.js';
import type { WebhookEventData, WebhookEventName } from '../token/webhook-event-map.js';
import type { WebhookReceipt } from '../token/webhook-receipt.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { DeliveryMethod } from '../queue/webhook-delivery.interface.js';

/** Options of one event that is signed for one destination. */
export interface SignOptions {
  /** The media type of bytes; required with them. */
  readonly contentType?: string | undefined;
  /**
   * The event's id (`txn`); 1 to 255 characters, default a random UUID. The same event with the same data and id is recorded
   * once for each destination; another event or other data under a used id is refused (`id_conflict`).
   */
  readonly id?: string | undefined;
  /** Overrides the endpoint's `aud`. */
  readonly audience?: string | readonly string[] | undefined;
  /** Overrides the endpoint's `sub`. */
  readonly subject?: string | undefined;
  /** Overrides the endpoint's choice of method; an explicit HEAD never falls back to POST. */
  readonly method?: DeliveryMethod | undefined;
  /** Overrides the endpoint's wire format. */
  readonly profile?: WebhookProfile | undefined;
  /**
   * The tenant whose endpoints receive the event; without it, the endpoints without a tenant. With the id of one endpoint,
   * the endpoint must belong to the tenant. An explicit `undefined` is refused: it is almost always a bug.
   */
  readonly tenant?: string;
}

/** Options of one published event. */
export interface PublishOptions extends SignOptions {
  /** Puts the first attempt off. */
  readonly delay?: Duration | undefined;
  /** Aborted before the event is recorded, it records nothing; later, it only ends the waiting of `send`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * A transaction to record the event in; only for `publish`, with a queue that is transactional. `send`
   * waits for an attempt that could only come after the commit.
   *
   * Default: the current transaction of `@nestjs-cls/transactional`, where there is one (see `transactionHost`), else
   * none. `false`: none, so the event goes out whatever becomes of the current one.
   */
  readonly tx?: unknown;
}

/** What was recorded. */
export interface PublishResult {
  /** The event's id. */
  readonly id: string;
  readonly event: string;
  /** One for each endpoint that wants the event. */
  readonly deliveries: readonly { readonly id: string; readonly endpointId: string }[];
  /** Every delivery was recorded before, by a call with the same id, event and data; nothing is sent again. */
  readonly duplicate?: true;
}

/** How the first attempt ended. */
export interface SendResult {
  /** The event's id. */
  readonly id: string;
  /** `scheduled`: it failed, or had to wait, and will be attempted again. */
  readonly status: 'delivered' | 'scheduled' | 'failed';
  /** Attempts made so far. */
  readonly attempts: number;
  /** The receiver's status, if it answered. */
  readonly statusCode?: number;
  /** Milliseconds the attempt took. */
  readonly durationMs: number;
  /** Only when `scheduled`. */
  readonly nextAttemptAt?: Date;
  /** Absent when `delivered`. */
  readonly failureReason?: FailureReason;
  /**
   * What the receiver can be compared with, of the last request that was made; absent when none was, or when
   * only the queue remembers the attempt.
   */
  readonly receipt?: WebhookReceipt;
  /** The delivery was recorded before, by a call with the same id, event and data; this is its state. */
  readonly duplicate?: true;
}

/** A request for the caller to send with a client of its own. It holds the token: never log it. */
export interface SignedWebhookRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Send exactly these octets; absent for HEAD, and for an event without data. */
  readonly body?: Buffer;
  readonly token: string;
  /** The event's id. */
  readonly id: string;
  /** What the receiver can be compared with; the one part of the request that is safe to log. */
  readonly receipt: WebhookReceipt;
}

/** Data and options; data may be left out where the event is declared without, or not declared. */
export type EventArguments<Event extends WebhookEventName, Options> =
  undefined extends WebhookEventData<Event>
    ? [data?: WebhookEventData<Event>, options?: Options]
    : [data: WebhookEventData<Event>, options?: Options];
