import { EndpointCircuit } from './circuit/endpoint-circuit.js';
import type { ResolvedDestination } from './options/publisher-options.interface.js';

/**
 * What the publisher has learnt of a destination. It lives in memory only: after a restart it is learnt
 * again, at the price of one request.
 */
export class DestinationState {
  /** Epoch milliseconds until which deliveries wait: the receiver is overloaded, or lets requests time out. */
  pausedUntil = 0;

  /** Gives it a rest while it keeps failing. */
  readonly circuit = new EndpointCircuit();

  /** A HEAD got nowhere, and the POST behind it was acknowledged: HEAD is not worth trying again. */
  needsPost = false;

  constructor(
    /** Nothing is sent any more. */
    public disabled = false,
  ) {}
}

/** A destination with all that an attempt needs to know of it. */
export interface DeliveryTarget extends ResolvedDestination {
  /** Absent for a URL that the caller named. */
  readonly endpointId?: string;
  readonly url: string;
  /** For logs: the endpoint's id or the URL's origin, never its path or query, which may be credentials. */
  readonly label: string;
  readonly state: DestinationState;
}
