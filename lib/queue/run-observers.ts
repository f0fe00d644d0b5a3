import type { WebhookDelivery, DeliveryRun } from './webhook-delivery.js';

/** A run of a delivery, and whose it was: the deliverer's, or that of the worker of received events. */
export interface ObservedRun extends DeliveryRun {
  readonly consumer: object;
  readonly delivery: WebhookDelivery;
}

/**
 * Called with every run of this process, before its queue records the outcome. Empty outside of tests: the testing kit
 * observes from its import on, since a queue may run a delivery before the test asks.
 */
export const runObservers = new Set<(run: ObservedRun) => void>();
