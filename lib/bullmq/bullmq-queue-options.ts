import type { Queue } from 'bullmq';
import type { Duration } from '../clock/duration.js';
import { SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { type QueueConcurrency, requireCount, resolveConcurrency } from '../queue/lane-slots.js';
import { lacksHashTag } from './redis-server.js';

/** Concurrency, leases and retention of a {@link BullMqQueue}. */
export interface BullMqQueueOptions {
  /** Attempts that run at once in this process; default 50. */
  readonly concurrency?: number | undefined;
  /**
   * Attempts that run at once to one endpoint or origin; default a quarter of `concurrency`, at least 1. Endpoints that
   * take longer than a second share a fifth of `concurrency`.
   */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long a delivered delivery is kept; default `'96h'`. */
  readonly keepDelivered?: Duration | undefined;
  /** How many delivered deliveries are kept at most; default 100,000. */
  readonly maxDelivered?: number | undefined;
  /** How long after a crash an interrupted attempt runs again; default `'30s'`, at least `'5s'`. */
  readonly lease?: Duration | undefined;
  /** How long a command may take before its connection is replaced; default `'10s'`. */
  readonly timeout?: Duration | undefined;
  /** Default: the system clock. The clocks of all processes must agree to within seconds. */
  readonly clock?: WebhookClock | undefined;
}

/** Checked options, with defaults filled in; durations in milliseconds. */
export interface ResolvedBullMqOptions extends QueueConcurrency {
  readonly keepDelivered: number;
  readonly maxDelivered: number;
  readonly lease: number;
  readonly timeout: number;
  readonly clock: WebhookClock;
}

/** Milliseconds. */
const DEFAULT_KEEP = 96 * 3_600_000;
const DEFAULT_LEASE = 30_000;
const LEAST_LEASE = 5_000;
const DEFAULT_TIMEOUT = 10_000;

/** @throws {@link WebhookConfigurationError} */
export function resolveBullMqOptions(
  queue: Queue,
  options: BullMqQueueOptions,
): ResolvedBullMqOptions {
  const { maxDelivered = 100_000, clock = new SystemClock() } = options;
  const problems = new ConfigurationFaults('BullMqQueue');
  const resolved = {
    ...resolveConcurrency(options, problems),
    keepDelivered: problems.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP),
    maxDelivered,
    lease: problems.duration('lease', options.lease, DEFAULT_LEASE),
    timeout: problems.duration('timeout', options.timeout, DEFAULT_TIMEOUT),
    clock,
  };
  requireCount('maxDelivered', maxDelivered, problems);
  problems.require(resolved.lease >= LEAST_LEASE, 'lease', "must be at least '5s'");
  if (typeof (queue as Partial<Queue> | undefined)?.addBulk !== 'function') {
    const remedy = 'inject it with getQueueToken(name), or create one with new Queue(name)';
    problems.add('queue', `must be a Queue of bullmq; ${remedy}`);
  } else if (lacksHashTag(queue)) {
    const remedy = 'create the Queue with prefix: "{webhooks}"';
    problems.add('queue', `a Redis Cluster would spread its keys over several nodes; ${remedy}`);
  }
  if (problems.all.length > 0) throw new WebhookConfigurationError(problems.all);
  return resolved;
}
