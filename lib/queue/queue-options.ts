import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import * as option from '../options/rules.js';

/** Attempts that a process runs at once, in all and to one endpoint. */
export interface QueueConcurrency {
  readonly concurrency: number;
  readonly concurrencyPerDestination: number;
}

/** Options of every queue, for its attempts. */
export interface QueueOptions {
  /** Attempts that this process runs at once; default 50. */
  readonly concurrency?: number | undefined;
  /**
   * Attempts that run at once to one endpoint, or to one origin of URLs that callers pass; default a quarter of
   * `concurrency`, at least 1. Endpoints that take longer than a second share a fifth of `concurrency`.
   */
  readonly concurrencyPerDestination?: number | undefined;
  /**
   * How long the payload of a delivered delivery is kept, at least `'1m'`; default: as long as the delivery. Its attempts, and the
   * recognition of its id, stay. Without its payload it cannot be sent again. Pending and dead deliveries keep theirs.
   */
  readonly keepPayloads?: Duration | undefined;
  /** Default: the system clock. */
  readonly clock?: WebhookClock | undefined;
}

/** Milliseconds between two deletions of what is past its retention. */
export const RETENTION_INTERVAL = 5_000;

/** Milliseconds for which durable queues remember the last number of an ordering key, and the state of limits, without use. */
export const KEPT_UNUSED = 30 * 24 * 3_600_000;

export const QUEUE = {
  concurrency: option.optional(option.whole(1), 50),
  concurrencyPerDestination: option.optional(option.whole(1)),
  keepPayloads: option.optional(option.duration({ min: '1m' })),
  clock: option.optional(option.CLOCK),
};

export interface InProcessQueueOptions extends QueueOptions {
  /** Pending deliveries, running ones included; default 10,000. */
  readonly maxPending?: number | undefined;
  /**
   * Bytes of payloads and answers; default 64 MiB. Finished deliveries take at most a quarter of them; if pending ones
   * need more, the payloads of finished ones are dropped, delivered ones first.
   */
  readonly maxBytes?: number | undefined;
  /**
   * The last delivered deliveries that are remembered, and as many dead ones; default 10,000. A forgotten one is no
   * longer listed, and its id can be recorded again. Dead ones that block their ordering key are kept, with their payloads.
   */
  readonly maxFinished?: number | undefined;
}

export const IN_PROCESS_QUEUE = option.object<InProcessQueueOptions>()({
  ...QUEUE,
  maxPending: option.optional(option.whole(1), 10_000),
  maxBytes: option.optional(option.whole(1, undefined, 'of bytes'), 64 * 1024 * 1024),
  maxFinished: option.optional(option.whole(1), 10_000),
});

/** Options of every durable queue; milliseconds. */
export const DURABLE_QUEUE = {
  ...QUEUE,
  keepDelivered: option.optional(option.duration(), 96 * 3_600_000),
  keepDead: option.optional(option.duration()),
};

/** Fills in the defaults that depend on other options. */
export function withQueueDefaults<
  Options extends { [Name in keyof typeof QUEUE]: option.Read<(typeof QUEUE)[Name]> },
>(options: Options): Options & QueueConcurrency & { readonly clock: WebhookClock } {
  const { concurrency, clock = new SystemClock() } = options;
  const quarter = Math.max(1, Math.floor(concurrency / 4));
  const { concurrencyPerDestination = quarter } = options;
  return { ...options, concurrencyPerDestination, clock };
}

/** The error for a queue that is consumed twice. @param hasStopped - whether the first application has stopped it */
export function servesAnother(hasStopped: boolean): WebhookConfigurationError {
  const message = hasStopped
    ? 'was stopped with the application that used it; create the queue in forRootAsync({ useFactory }), or use overrideWebhooks() in tests'
    : 'already serves another publisher; create a queue of its own for each';
  return new WebhookConfigurationError([{ path: 'publisher.queue', message }]);
}
