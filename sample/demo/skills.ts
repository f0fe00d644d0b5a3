import type { SignedWebhookRequest } from 'nestjs-webhook-token';
import type { Fingerprint } from './fingerprint.js';
import type { ParcelName } from './publisher/parcels.js';

export interface Order {
  readonly id: string;
  /** In cents. */
  readonly total: number;
}

/** What the demo can ask the publisher's process. */
export interface PublisherSkills {
  /** Sends the parcel of this name; returns the outcome of the first attempt. */
  send(event: ParcelName): Promise<SentParcel>;
  /** Signs an order, which the demo sends. */
  sign(order: Order, choices: SignChoices): Promise<SignedWebhookRequest>;
}

export interface SentParcel extends Fingerprint {
  /** The event's id. */
  readonly id: string;
  readonly contentType: string;
  readonly status: 'delivered' | 'scheduled' | 'failed';
  readonly statusCode: number | undefined;
}

export interface SignChoices {
  readonly method?: 'HEAD' | 'POST';
  /** The event's id; default a new one. */
  readonly id?: string;
}

/** What the demo can ask the receiver's process. */
export interface ReceiverSkills {
  /** Every handler run for the event with this id. */
  runsFor(id: string): readonly HandlerRun[];
  /** The same, as soon as a handler has succeeded. */
  runsUntilHandled(id: string): Promise<readonly HandlerRun[]>;
}

export interface HandlerRun extends Fingerprint {
  /** The event's id. */
  readonly id: string;
  readonly jti: string;
  readonly method: 'HEAD' | 'POST';
  readonly contentType: string | undefined;
  readonly succeeded: boolean;
}
