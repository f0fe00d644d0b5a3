import type { DeliveryTarget } from '../sending/delivery-target.js';
import type { StoredEndpoint } from './endpoint-store.js';

/** A destination, and the version of the managed endpoint it was made of, if any. */
export interface EndpointTarget extends DeliveryTarget {
  readonly stored?: StoredEndpoint;
}

/** Whether deliveries to it are given up without an attempt. */
export function isDisabled({ stored, state }: EndpointTarget): boolean {
  return stored?.disabled !== undefined || state.disabled !== undefined;
}
