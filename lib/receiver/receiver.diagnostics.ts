import { channel } from 'node:diagnostics_channel';

/** What is published for every request a receiver has answered. Nothing in it is secret or payload. */
export interface WebhookReceivedMessage {
  /** Row of the answer table. */
  readonly situation: string;
  /** The code the sender gets; absent on success, and where the application refused the request. */
  readonly code: string | undefined;
  readonly status: number;
  /** Absent if the request was refused before a receiver was chosen. */
  readonly receiver: string | undefined;
  /** The event's name and issuer, once they are verified. */
  readonly event: string | undefined;
  readonly issuer: string | undefined;
  /** No handler took the event. */
  readonly unhandled: boolean;
}

/** Name of the diagnostics channel that receivers publish to: the seam for metrics and traces. */
export const WEBHOOK_RECEIVED_CHANNEL = 'nestjs-webhook-token:received';

const received = channel(WEBHOOK_RECEIVED_CHANNEL);

/** Publishes what a receiver answered; costs nothing while nobody listens. */
export function publishReceived(message: () => WebhookReceivedMessage): void {
  if (received.hasSubscribers) received.publish(message());
}
