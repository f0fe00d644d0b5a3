import type { Duration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';

/** What a queue on PostgreSQL and an embedded one have in common. */
export interface JobDeliveryQueueOptions {
  /**
   * What the queue is called in its database; default `'webhook-deliveries'`. One database serves several queues, as one of a publisher
   * and one of a receiver, when each has a name of its own.
   */
  readonly name?: string | undefined;
  /** Attempts that this process runs at once; default 50. */
  readonly concurrency?: number | undefined;
  /** Those of them that go to one endpoint, or one origin; default a quarter of `concurrency`, at least 1. */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long a delivered one is known by its id, in whole seconds; default `'96h'`. */
  readonly keepDelivered?: Duration | undefined;
  /**
   * How long after a crash of its process an attempt runs again, in whole seconds; default `'30s'`, at
   * least `'10s'`. It is renewed while an attempt runs, however long that takes.
   */
  readonly lease?: Duration | undefined;
  /** How often an idle process looks for what others have recorded; default `'1s'`, at least `'100ms'`. */
  readonly pollInterval?: Duration | undefined;
  /** Default: the machine's clock, which must agree with that of the other processes to within seconds. */
  readonly clock?: WebhookClock | undefined;
}
