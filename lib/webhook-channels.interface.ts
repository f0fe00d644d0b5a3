import type {
  WEBHOOK_ATTEMPTED_CHANNEL,
  WEBHOOK_DELIVERY_CHANNEL,
  WEBHOOK_PUBLISHED_CHANNEL,
  WebhookAttemptedMessage,
  WebhookPublishedMessage,
} from './deliveries/delivery.channels.js';
import type { WebhookDeliveryEvent } from './deliveries/webhook-delivery.events.js';
import type {
  WEBHOOK_HANDLED_CHANNEL,
  WEBHOOK_RECEIVED_CHANNEL,
  WebhookHandledMessage,
  WebhookReceivedMessage,
} from './receiver/receiver.channels.js';

/**
 * The messages of the diagnostics channels, by channel name.
 *
 * @example
 * ```ts
 * type Attempted = WebhookChannelMessages['nestjs-webhook-token:attempted'];
 *
 * subscribe('nestjs-webhook-token:attempted', (message) => {
 *   const { event, outcome } = message as Attempted;
 * });
 * ```
 */
export interface WebhookChannelMessages {
  /** A request was answered. */
  readonly [WEBHOOK_RECEIVED_CHANNEL]: WebhookReceivedMessage;
  /** A handler ended. */
  readonly [WEBHOOK_HANDLED_CHANNEL]: WebhookHandledMessage;
  /** An event was recorded, or recording it failed. */
  readonly [WEBHOOK_PUBLISHED_CHANNEL]: WebhookPublishedMessage;
  /** An attempt ended. */
  readonly [WEBHOOK_ATTEMPTED_CHANNEL]: WebhookAttemptedMessage;
  /** A delivery got an outcome, or an endpoint changed. */
  readonly [WEBHOOK_DELIVERY_CHANNEL]: WebhookDeliveryEvent;
}
