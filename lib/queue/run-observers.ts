import type { WebhookDelivery } from './webhook-delivery.interface.js';
import type { DeliveryOutcome } from './webhook-queue.js';

/** One run of a delivery. */
export interface DeliveryRun {
  /** The deliverer, or the worker of received events. */
  readonly consumer: object;
  readonly delivery: WebhookDelivery;
  readonly attempt: number;
  readonly outcome: DeliveryOutcome;
  readonly statusCode?: number | undefined;
}

/**
 * Called with every run of this process, before its queue records the outcome. Empty outside of tests: the testing kit
 * observes from its import on, since a queue may run a delivery before the test asks.
 */
export const runObservers = new Set<(run: DeliveryRun) => void>();
