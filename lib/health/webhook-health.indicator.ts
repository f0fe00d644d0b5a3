import { Injectable } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import type { Duration } from '../clock/duration.js';
import { inTime, SystemClock } from '../clock/webhook-clock.js';
import { errorType } from '../errors/webhook.error.js';
import type { KeySetStatus } from '../keys/remote-key-sets.js';
import { readOptions } from '../options/read-options.js';
import { duration, object, optional, type Read } from '../options/rules.js';
import type { PollStatus } from '../receiver/event.poller.js';
import { checkQueue } from '../queue/webhook-queue.js';
import {
  configuredStores,
  type OwnedQueue,
  queuesOf,
  readBacklog,
  type WebhookParts,
  webhookPartsOf,
} from './webhook-parts.js';

/** Thresholds of the {@link WebhookHealthIndicator}; milliseconds or strings such as `'5m'`. */
export interface WebhookHealthOptions {
  /** By how much the oldest due delivery or queued event may be late, and for how long fetching events may fail; default `'5m'`. */
  readonly maxLag?: Duration | undefined;
  /** How old a key set (`jwksUri`) may become while it cannot be fetched, from its first failure if it never was; default `'1h'`. */
  readonly maxKeyAge?: Duration | undefined;
  /** How long a store or queue may take to answer; default `'5s'`. */
  readonly timeout?: Duration | undefined;
}

const LIMITS = object<WebhookHealthOptions>()({
  maxLag: optional(duration(), 300_000),
  maxKeyAge: optional(duration(), 3_600_000),
  timeout: optional(duration({ isTimeout: true }), 5_000),
});

/** Milliseconds. */
type Limits = Read<typeof LIMITS>;

/** The details of a result. They contain no address, except the hosts of key sets and polled streams, and no message of an error. */
export interface WebhookHealthDetails {
  /**
   * By option or receiver: `up`; the code or class name of an error; `stale` for a key set; `timeout`; `late` for deliveries, queued
   * and polled events, which does not make the result `down`. During a shutdown also `application`, which is `shutting_down`.
   */
  readonly checks: Readonly<Record<string, string>>;
  /** Streams of polled events that fail, also while they are not `late` yet, by the names in `checks`; absent if there is none. */
  readonly failing?: Readonly<Record<string, { readonly since: Date; readonly reason: string }>>;
  /** Milliseconds by which the oldest due delivery is late; absent, as the next two, if nothing is published. */
  readonly lagMs?: number;
  readonly pending?: number;
  readonly dead?: number;
}

const UP = 'up';
/** One slow partner or handler causes it, on every instance at once, so it does not make the result `down`. */
const LATE = 'late';

/**
 * A health indicator for `@nestjs/terminus`: checks stores, queues and how late they are, remote key sets and polled streams.
 *
 * Provide it in a module that imports `TerminusModule`:
 *
 * ```ts
 * return this.health.check([() => this.webhooks.check('webhooks', { maxLag: '2m' })]);
 * ```
 */
@Injectable()
export class WebhookHealthIndicator {
  constructor(
    private readonly indicators: HealthIndicatorService,
    private readonly modules: ModulesContainer,
  ) {}

  /**
   * Checks every webhook module of the application.
   *
   * @param key - the name of the result
   * @returns `down` if a store or queue does not answer or cannot be written to, or a key set is stale, or the application
   * is shutting down
   * @throws {@link WebhookConfigurationError} for a wrong option
   */
  async check<const Key extends string>(
    key: Key,
    options?: WebhookHealthOptions,
  ): Promise<HealthIndicatorResult<Key>> {
    const limits = readOptions(LIMITS, options, 'WebhookHealthIndicator');
    const started = webhookPartsOf(this.modules).flatMap((parts) => checkParts(parts, limits));
    const found = await Promise.all(started);
    const checks: Record<string, string> = {};
    const failing: Record<string, Failure> = {};
    const figures: Figures[] = [];
    for (const { name, result, failure, ...more } of found) {
      // Two modules may have the same names.
      const known = checks[name] ?? UP;
      if (known === UP || (known === LATE && result !== UP)) checks[name] = result;
      if (failure !== undefined) failing[name] = failure;
      if (more.figures !== undefined) figures.push(more.figures);
    }
    const details: WebhookHealthDetails = {
      checks,
      ...(Object.keys(failing).length > 0 && { failing }),
      ...figures.reduce(total, {}),
    };
    const isUp = found.every(({ result }) => result === UP || result === LATE);
    const session = this.indicators.check(key);
    return isUp ? session.up({ ...details }) : session.down({ ...details });
  }
}

type Failure = NonNullable<WebhookHealthDetails['failing']>[string];
type Figures = Omit<WebhookHealthDetails, 'checks' | 'failing'>;

interface Check {
  readonly name: string;
  readonly result: string;
  readonly failure?: Failure;
  readonly figures?: Figures;
}

function checkParts(parts: WebhookParts, limits: Limits): Promise<Check>[] {
  const { receivers, poller, drain } = parts;
  const closing = drain.closing
    ? [Promise.resolve({ name: 'application', result: 'shutting_down' })]
    : [];
  const stores = configuredStores(parts).map(async ({ path, store }) => ({
    name: path,
    result: await resultOf(limits, () => store.check?.()),
  }));
  const queues = queuesOf(parts).flatMap((queue) => [
    checkAnswer(queue, limits),
    checkLag(queue, limits),
  ]);
  const keySets = [...receivers.values()].flatMap(({ name, issuers, scheme }) =>
    [...issuers.checkKeySets(), ...(scheme.checkKeySets?.() ?? [])].map(async (keySet) => ({
      name: `receiver "${name}": keys at ${keySet.host}`,
      result: isStale(keySet, limits) ? 'stale' : UP,
    })),
  );
  const streams = poller.status().map(async (status) => checkStream(status, limits));
  return [...closing, ...stores, ...queues, ...keySets, ...streams];
}

async function checkAnswer({ owner, queue }: OwnedQueue, limits: Limits): Promise<Check> {
  return { name: `${owner}.queue`, result: await resultOf(limits, () => checkQueue(queue)) };
}

/** Deliveries and events are late if their queue has no consumer, or cannot keep up. */
async function checkLag(checked: OwnedQueue, limits: Limits): Promise<Check> {
  const { owner, receiver } = checked;
  const name = `${owner}.${receiver === undefined ? 'deliveries' : 'events'}`;
  let backlog: Awaited<ReturnType<typeof readBacklog>> | undefined;
  const result = await resultOf(limits, async () => {
    backlog = await readBacklog(checked);
  });
  if (backlog === undefined) return { name, result };
  const { lag: lagMs, pending, dead } = backlog;
  const check = { name, result: lagMs > limits.maxLag ? LATE : UP };
  return receiver === undefined ? { ...check, figures: { lagMs, pending, dead } } : check;
}

/** A sender may be away for a while without being reported: it keeps the events. */
function checkStream({ receiver, host, failing }: PollStatus, { maxLag }: Limits): Check {
  const name = `receiver "${receiver}": events at ${host}`;
  if (failing === undefined) return { name, result: UP };
  const { since, durationMs, reason } = failing;
  return { name, result: durationMs > maxLag ? LATE : UP, failure: { since, reason } };
}

/** A set that can be fetched is refreshed by the next webhook, whatever its age. */
function isStale({ isFailing, ageMs = 0 }: KeySetStatus, { maxKeyAge }: Limits): boolean {
  return isFailing && ageMs > maxKeyAge;
}

/** In real time: a test clock would never time out. */
async function resultOf({ timeout }: Limits, check: () => unknown): Promise<string> {
  const late = new Error('timeout');
  try {
    await inTime(
      new SystemClock(),
      timeout,
      async () => check(),
      () => late,
    );
    return UP;
  } catch (error) {
    return error === late ? 'timeout' : errorType(error);
  }
}

function total(one: Figures, other: Figures): Figures {
  const { lagMs = 0, pending = 0, dead = 0 } = other;
  return {
    lagMs: Math.max(one.lagMs ?? 0, lagMs),
    pending: (one.pending ?? 0) + pending,
    dead: (one.dead ?? 0) + dead,
  };
}
