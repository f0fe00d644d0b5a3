import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import * as option from '../options/rules.js';

/** Attempts that a process runs at once, in all and to one destination. */
export interface QueueConcurrency {
  readonly concurrency: number;
  readonly concurrencyPerDestination: number;
}

/** Options of every queue. */
export const QUEUE = {
  concurrency: option.optional(option.whole(1), 50),
  concurrencyPerDestination: option.optional(option.whole(1)),
  clock: option.optional(option.CLOCK),
};

/** Options of every durable queue; milliseconds. */
export const DURABLE_QUEUE = {
  ...QUEUE,
  keepDelivered: option.optional(option.duration(), 96 * 3_600_000),
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
