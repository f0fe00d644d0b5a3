import { EndpointCircuit } from './endpoint-circuit.js';
import type { ResolvedDestination } from './destination.js';

/** Why an endpoint gets nothing. */
export type EndpointDisabledReason =
  /** Somebody said so. */
  | 'requested'
  /** It answered 410. */
  | 'gone'
  /** It has failed every attempt for too long. */
  | 'failing';

/** Since when an endpoint gets nothing (epoch milliseconds), and why. */
export interface EndpointDisabled {
  readonly at: number;
  readonly reason: EndpointDisabledReason;
}

/**
 * What the publisher has learnt of a destination. It lives in memory only: after a restart it is learnt
 * again, at the price of one request.
 */
export class DestinationState {
  /** Epoch milliseconds until which deliveries wait: the receiver is overloaded, or lets requests time out. */
  pausedUntil = 0;

  /** Gives it a rest while it keeps failing. */
  circuit = new EndpointCircuit();

  /** A HEAD got nowhere, and the POST behind it was acknowledged: HEAD is not worth trying again. */
  needsPost = false;

  constructor(
    /** Nothing is sent any more by this process. */
    public disabled?: EndpointDisabled,
  ) {}

  /** Begins anew: somebody says that the endpoint works. */
  forget(): void {
    this.pausedUntil = 0;
    this.circuit = new EndpointCircuit();
    this.needsPost = false;
    this.disabled = undefined;
  }
}

/** A destination with all that an attempt needs to know of it. */
export interface DeliveryTarget extends ResolvedDestination {
  /** Absent for a URL that the caller named. */
  readonly endpointId?: string;
  /** Whose events the endpoint gets; absent for those of none. */
  readonly tenant?: string;
  readonly url: string;
  /** For logs: the endpoint's id or the URL's origin, never its path or query, which may be credentials. */
  readonly label: string;
  readonly state: DestinationState;
}
