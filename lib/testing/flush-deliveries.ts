import type { INestApplicationContext } from '@nestjs/common';
import { WebhookDeliverer } from '../deliveries/webhook.deliverer.js';
import type { FailureReason } from '../queue/webhook-delivery.js';
import { readOptions } from '../options/read-options.js';
import { flag, object, optional } from '../options/rules.js';
import { type ObservedRun, runObservers } from '../queue/webhook-queue.js';
import { WebhookQueue } from '../queue/webhook-queue.js';
import { WEBHOOK_RECEIVERS } from '../receiver/receiver.constants.js';
import type { ResolvedReceivers } from '../receiver/receiver-options.resolver.js';
import { ReceivedEventWorker } from '../receiver/queued/received-event.worker.js';
import { RESOLVED_OPTIONS } from '../webhook.module.js';
import type { ResolvedWebhookOptions } from '../webhook-options.resolver.js';
import { initialise } from './in-memory-request.js';
import { TestClock } from './test-clock.js';

/** One attempt to deliver an event to an endpoint, or one run of the handlers of a queued event. */
export interface AttemptedDelivery {
  /** The delivery's id, as `publish` returns it. */
  readonly id: string;
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** Absent for a URL that the caller passed, and for a received event. */
  readonly endpointId?: string;
  /** Name of the receiver whose handlers ran. */
  readonly receiver?: string;
  /** 1 for the first. */
  readonly attempt: number;
  /** `delivered` (or handled), `scheduled` for another attempt, or `failed` for good. */
  readonly status: 'delivered' | 'scheduled' | 'failed';
  /** The answer's status, if there was an answer. */
  readonly statusCode?: number;
  readonly failureReason?: FailureReason;
  readonly nextAttemptAt?: Date;
}

/** Options of {@link flushDeliveries}. */
export interface FlushDeliveriesOptions {
  /**
   * Also run later deliveries, such as retries and those that wait for a `rateLimit`, by moving the application's `TestClock`, until
   * every delivery has succeeded or is given up; default `false`. Deliveries of a paused endpoint are left to wait.
   */
  readonly retries?: boolean | undefined;
}

const OPTIONS = object<FlushDeliveriesOptions>()({ retries: optional(flag, false) });

/** The attempts since the last flush, and the endpoints whose last delivery was deferred because they are paused. */
interface Recorded {
  attempted: AttemptedDelivery[];
  readonly paused: Set<string | undefined>;
}

const recorded = new WeakMap<object, Recorded>();
/** Attempts that are kept if no one flushes. */
const MAX_RECORDED = 10_000;
/** Moves of the clock; a delivery that is deferred forever would never end. */
const MAX_ROUNDS = 10_000;
/** Flushes in a row that run nothing, although a delivery is due: a queue may follow the clock of its server. */
const MAX_IDLE_ROUNDS = 100;

runObservers.add((run) => {
  const { attempted, paused } = recordOf(run.consumer);
  const { outcome, delivery } = run;
  const endpointId = delivery.received === undefined ? delivery.endpointId : undefined;
  const isPaused = outcome.type === 'defer' && outcome.reason === 'endpoint_paused';
  if (isPaused) paused.add(endpointId);
  else paused.delete(endpointId);
  if (outcome.type === 'defer') return;
  if (attempted.length >= MAX_RECORDED) attempted.shift();
  attempted.push(attemptOf(run, outcome));
});

/**
 * Runs every delivery and every queued received event that is due, on every queue of the application, without waiting for time
 * to pass.
 *
 * ```ts
 * await publisher.publish('order.created', { id: 'o1' });
 * const attempts = await flushDeliveries(app); // [{ event: 'order.created', status: 'scheduled', statusCode: 503, … }]
 * await flushDeliveries(app, { retries: true }); // until it is delivered or given up
 * ```
 *
 * Due means by the clock of the queue: pass the application's `TestClock` to the queue too. A `BullMqQueue` needs one that starts
 * at the present, `new TestClock(Date.now())`, since Redis has a clock of its own.
 *
 * @returns the attempts since the last flush, in order; a queue may have made the first ones already
 * @throws Error with `retries` without a `TestClock`, and for a queue without `flush`
 */
export async function flushDeliveries(
  app: INestApplicationContext,
  options?: FlushDeliveriesOptions,
): Promise<readonly AttemptedDelivery[]> {
  const { retries } = readOptions(OPTIONS, options, 'flushDeliveries');
  await initialise(app);
  /** Of each webhook module that has one. */
  const find = <T>(token: unknown): T[] =>
    app
      .get<T | undefined>(token as never, { strict: false, each: true })
      .filter((found) => found !== undefined);
  const receivers = find<ResolvedReceivers>(WEBHOOK_RECEIVERS).flatMap((all) => [...all.values()]);
  const queues = [
    ...find<WebhookQueue>(WebhookQueue),
    ...receivers.map(({ queued }) => queued?.queue),
  ].filter((queue) => queue !== undefined);
  const deliverers = find<WebhookDeliverer>(WebhookDeliverer);
  const consumers = [...deliverers, ...find<object>(ReceivedEventWorker)];
  const attempts: AttemptedDelivery[] = [];
  const { clock } = find<ResolvedWebhookOptions>(RESOLVED_OPTIONS)[0]!;
  let idle = 0;
  for (let round = 0; round < MAX_ROUNDS && idle < MAX_IDLE_ROUNDS; round++) {
    await Promise.all(queues.map(flush));
    await Promise.all(deliverers.map(async (one) => one.settle(Infinity)));
    const made = consumers.flatMap(take);
    attempts.push(...made);
    if (!retries) return attempts;
    const paused = new Set(consumers.flatMap((one) => [...recordOf(one).paused]));
    const next = Math.min(...(await Promise.all(queues.map((queue) => nextDue(queue, paused)))));
    if (next === Infinity) return attempts;
    idle = made.length === 0 && next <= clock.now() ? idle + 1 : 0;
    await moveTo(next, clock);
  }
  throw new Error(
    idle === 0
      ? `Deliveries are still deferred after ${MAX_ROUNDS} moves of the clock; flush without "retries" to see why.`
      : 'Deliveries are due, but their queue does not run them: it may limit rates by the clock of its server. Replace it with overrideWebhooks().',
  );
}

async function flush(queue: WebhookQueue): Promise<void> {
  if (queue.flush === undefined) {
    throw new Error(
      `${queue.constructor.name} cannot be flushed: implement flush() of WebhookQueue, or replace it with overrideWebhooks().`,
    );
  }
  await queue.flush();
}

/** When a queue can next run a delivery to an endpoint that is not paused, in epoch milliseconds. */
async function nextDue(queue: WebhookQueue, paused: Recorded['paused']): Promise<number> {
  const groups = await queue.counts({ unfinished: true });
  const dues = groups
    .filter(({ endpointId }) => !paused.has(endpointId))
    .map(({ oldestDue = Infinity }) => oldestDue);
  // The limits of an endpoint allow a start between two milliseconds.
  return Math.ceil(Math.min(...dues));
}

async function moveTo(time: number, clock: ResolvedWebhookOptions['clock']): Promise<void> {
  if (!(clock instanceof TestClock)) {
    throw new Error(
      'flushDeliveries(app, { retries: true }) moves the clock: set the option "clock" of WebhookModule, or of overrideWebhooks, to a TestClock.',
    );
  }
  if (time > clock.now()) clock.set(time);
  await clock.advance(0);
}

function recordOf(consumer: object): Recorded {
  let record = recorded.get(consumer);
  if (record === undefined) {
    record = { attempted: [], paused: new Set() };
    recorded.set(consumer, record);
  }
  return record;
}

function take(consumer: object): AttemptedDelivery[] {
  const record = recordOf(consumer);
  const { attempted } = record;
  record.attempted = [];
  return attempted;
}

function attemptOf(
  { delivery, attempt: made }: ObservedRun,
  outcome: Exclude<ObservedRun['outcome'], { type: 'defer' }>,
): AttemptedDelivery {
  const { id, eventId, event, received } = delivery;
  const endpointId = received === undefined ? delivery.endpointId : undefined;
  // Without an attempt, the number of the one that was not made.
  const attempt = made?.attempt ?? (outcome.type === 'dead' ? outcome.attempts + 1 : 1);
  const status = { delivered: 'delivered', retry: 'scheduled', dead: 'failed' } as const;
  return {
    id,
    eventId,
    event,
    endpointId,
    receiver: received?.receiver,
    attempt,
    status: status[outcome.type],
    statusCode: made?.statusCode,
    failureReason: outcome.type === 'delivered' ? undefined : outcome.reason,
    nextAttemptAt: outcome.type === 'retry' ? new Date(outcome.at) : undefined,
  };
}
