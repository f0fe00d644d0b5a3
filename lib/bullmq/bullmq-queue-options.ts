import type { Queue } from 'bullmq';
import type { Duration } from '../clock/duration.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import * as option from '../options/rules.js';
import { DURABLE_QUEUE, type QueueOptions, withQueueDefaults } from '../queue/queue-options.js';
import { keyPrefixOf, lacksHashTag } from './redis-server.js';

/** Concurrency, leases and retention of a {@link BullMqQueue}. */
export interface BullMqQueueOptions extends QueueOptions {
  /** How long a delivered delivery is kept; default `'96h'`. */
  readonly keepDelivered?: Duration | undefined;
  /**
   * How long a dead delivery is kept after it was recorded; default: until it is pruned. One that blocks its ordering key is kept
   * until it is redelivered, skipped or pruned.
   */
  readonly keepDead?: Duration | undefined;
  /**
   * How many delivered deliveries are kept; default 100,000. Each process deletes the oldest ones beyond this number every 5 seconds. If
   * several processes count at the same moment, each of them deletes up to 1,000, so that fewer are kept until more are delivered.
   */
  readonly maxDelivered?: number | undefined;
  /** How long after a crash an interrupted attempt runs again; default `'30s'`, at least `'5s'`. */
  readonly lease?: Duration | undefined;
  /** How long a command may take before its connection is replaced; default `'10s'`. */
  readonly timeout?: Duration | undefined;
  /** Default: the system clock. The clocks of all processes must agree to within seconds. */
  readonly clock?: WebhookClock | undefined;
}

const OPTIONS = option.object<BullMqQueueOptions>()({
  ...DURABLE_QUEUE,
  maxDelivered: option.optional(option.whole(1), 100_000),
  lease: option.optional(option.duration({ min: '5s' }), 30_000),
  timeout: option.optional(option.duration(), 10_000),
});

/** Checked options, with defaults filled in; durations in milliseconds. */
export type ResolvedBullMqOptions = ReturnType<typeof resolveBullMqOptions>;

/** @throws {@link WebhookConfigurationError} */
export function resolveBullMqOptions(queue: Queue, options: BullMqQueueOptions | undefined) {
  const problems = new Problems('BullMqQueue');
  if (!option.hasMethods(queue, ['addBulk'])) {
    const remedy = 'inject it with getQueueToken(name), or create one with new Queue(name)';
    problems.add('queue', `must be a Queue of bullmq; ${remedy}`);
  } else if ((queue as Partial<Queue>).opts?.connection === undefined) {
    const remedy = 'call BullModule.forRoot({ connection }), or create it with { connection }';
    problems.add('queue', `has no connection; ${remedy}`);
  } else if (lacksHashTag(queue)) {
    const remedy = 'create the Queue with prefix: "{webhooks}"';
    problems.add('queue', `a Redis Cluster would spread its keys over several nodes; ${remedy}`);
  } else if (keyPrefixOf(queue) !== undefined) {
    const remedy = 'remove it, and create the Queue with the option prefix instead';
    problems.add('queue', `BullMQ cannot use a connection with a keyPrefix; ${remedy}`);
  }
  return withQueueDefaults(readOptions(OPTIONS, options, problems));
}
