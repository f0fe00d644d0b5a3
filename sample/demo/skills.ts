import type { SignedWebhookRequest } from 'nestjs-webhook-token';
import type { Fingerprint } from './fingerprint.js';
import type { ParcelName } from './publisher/parcels.js';

export interface Order {
  readonly id: string;
  /** In cents. */
  readonly total: number;
}

/** Calls that the publisher's process answers. */
export interface PublisherSkills {
  /** Sends the event of this name; returns the result of the first attempt. */
  send(event: ParcelName): Promise<SentParcel>;
  /** Signs an order; the demo sends the request. */
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
  /** The event's id. Default: a new one. */
  readonly id?: string;
}

/** Calls that the receiver's process answers. */
export interface ReceiverSkills {
  /** Every handler run for the event with this id. */
  runsFor(id: string): readonly HandlerRun[];
  /** Resolves with the runs once one of them has succeeded. */
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
