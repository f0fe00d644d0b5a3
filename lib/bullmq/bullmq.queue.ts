import type { Queue } from 'bullmq';
import { type CancelWake, inTime, waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { FIRST_WAIT_AFTER_THROW } from '../queue/retry-schedule.js';
import type {
  DeliveryAttempt,
  DeliveryCountFilter,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryRecord,
  ListedDelivery,
} from '../queue/delivery-record.js';
import { deliveryLane } from '../queue/stored-delivery.js';
import {
  type DeliveryHandler,
  type EnqueuedDelivery,
  WebhookQueue,
} from '../queue/webhook-queue.js';
import { isRedisOutage, redisFailure } from '../redis/redis-failure.js';
import {
  type BullMqQueueOptions,
  resolveBullMqOptions,
  type ResolvedBullMqOptions,
} from './bullmq-queue-options.js';
import { DeliveryHistory, matches } from './delivery-history.js';
import {
  attemptsOf,
  deliveryIdOf,
  type DeliveryJob,
  isDead,
  isDelivered,
  jobIdOf,
  newJobData,
  newRound,
  recordOf,
} from './delivery-job.js';
import { DeliveryRunner } from './delivery-runner.js';
import { DeliveryWorker, reconnect } from './delivery-worker.js';
import { FairTurns } from './fair-turns.js';
import { LaneGate } from './lane-gate.js';
import { warnAboutServer } from './redis-server.js';

/** Milliseconds between two removals of old deliveries. */
const MAINTENANCE = 5_000;
/** Deliveries that one maintenance checks against the history, and that are removed at once. */
const CHECKED = 200;
const REMOVED = 1_000;
/** Milliseconds for which an entry of the history may be ahead of its job. */
const SETTLING = 60_000;
/** Deliveries that one script lists. */
const LONGEST_PAGE = 1_000;

/** BullMQ counts a crash as an attempt; no number of crashes may end a delivery. */
const UNLIMITED = Number.MAX_SAFE_INTEGER;

/**
 * Keeps deliveries in Redis, through BullMQ. Any number of processes can share it, and it is as durable as the server's
 * append-only file. It cannot join a database transaction.
 *
 * ```ts
 * WebhookModule.forRootAsync({
 *   imports: [BullModule.registerQueue({ name: 'webhooks' })],
 *   inject: [getQueueToken('webhooks')],
 *   useFactory: (queue: Queue) => ({ publisher: { …, queue: new BullMqQueue(queue) } }),
 * })
 * ```
 */
export class BullMqQueue extends WebhookQueue {
  override readonly durable = true;
  override readonly shared = true;
  override readonly transactional = false;

  private readonly clock: WebhookClock;
  private readonly options: ResolvedBullMqOptions;
  private readonly lanes: LaneGate;
  private readonly turns: FairTurns;
  private readonly history: DeliveryHistory;
  private worker: DeliveryWorker | undefined;
  private runner: DeliveryRunner | undefined;
  private cancelMaintenance: CancelWake = () => {};
  /** Where the next check of the history begins. */
  private checkedTo: DeliveryPageRequest['after'];
  private stopping = false;
  /** Calls of `enqueue` without an answer, and the ids that they record. */
  private readonly calls = new Set<Promise<unknown>>();
  private readonly recording = new Set<string>();
  /** The last connection error. BullMQ reconnects without reporting it to callers. */
  private lastError: unknown;
  private isOut = false;

  /**
   * @param queue - used for deliveries only, and closed by the application. Set `enableOfflineQueue: false` on its
   *   connection, so that publishing fails at once while Redis is unavailable.
   * @throws `WebhookConfigurationError`
   */
  constructor(
    private readonly queue: Queue,
    options: BullMqQueueOptions = {},
  ) {
    super();
    this.options = resolveBullMqOptions(queue, options);
    this.clock = this.options.clock;
    this.lanes = new LaneGate(this.options, this.clock);
    this.turns = new FairTurns(queue);
    this.history = new DeliveryHistory(queue);
    // Reported to callers; without a listener BullMQ prints it.
    (queue as Partial<Queue>).on?.('error', (error) => (this.lastError = error));
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    this.refuseWhenStopping();
    const call = this.request(async () => this.record(deliveries));
    this.calls.add(call);
    try {
      return await call;
    } finally {
      this.calls.delete(call);
    }
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { clock, history, lanes, turns } = this;
    const { concurrency, lease, timeout } = this.options;
    const runner = new DeliveryRunner({ handler, lanes, turns, history, lease, clock });
    this.runner ??= runner;
    // Created once: a worker that waits for Redis starts by itself when it is back.
    this.worker ??= new DeliveryWorker(this.queue, {
      process: async (job, token) => runner.process(job, token),
      onError: (error) => this.onError(error),
      onWorking: () => (this.isOut = false),
      onDrained: () => void turns.restart().catch(() => {}),
      concurrency,
      lease,
      timeout,
    });
    const { worker } = this;
    this.maintain();
    await this.request(async () => worker.waitUntilReady());
    await warnAboutServer(this.queue);
  }

  override async find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]> {
    return this.request(async () => this.read(ids));
  }

  override async list(
    filter: DeliveryFilter,
    { after, limit }: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    return this.request(async () => {
      const found: ListedDelivery[] = [];
      const wrong: string[] = [];
      let next = after;
      do {
        const wanted = Math.min(limit - found.length, LONGEST_PAGE);
        const page = await this.history.list(filter, { limit: wanted, after: next });
        for (const [index, record] of (await this.read(page.ids)).entries()) {
          if (record !== undefined && matches(record, filter)) found.push(withoutPayload(record));
          else wrong.push(page.ids[index]!);
        }
        next = page.next;
      } while (next !== undefined && found.length < limit);
      await this.repair(wrong);
      return found;
    });
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    const job = await this.request(async () => this.job(id));
    return job === undefined ? [] : attemptsOf(job);
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    return this.request(async () => this.history.counts(filter));
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    return this.request(async () => {
      const changed: string[] = [];
      for (const id of new Set(ids)) {
        const job = await this.job(id);
        if (job !== undefined && (await this.makeDue(job))) changed.push(id);
      }
      return changed;
    });
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    let pruned = 0;
    for (const status of ['delivered', 'dead'] as const) {
      let after: DeliveryPageRequest['after'];
      do {
        const page = await this.list({ tenant, status, until: before }, { after, limit: REMOVED });
        const ids = page.map(({ delivery }) => delivery.id);
        pruned += await this.request(async () => this.remove(ids));
        after = page.length < REMOVED ? undefined : page.at(-1)!.delivery;
      } while (after !== undefined);
    }
    return pruned;
  }

  /** BullMQ has its own clock, so jobs that are due by the queue's clock are promoted. */
  override async flush(): Promise<void> {
    if (this.worker === undefined) return;
    let isBusy: boolean;
    do {
      isBusy = await this.request(async () => {
        // In this order: a job that ends its run meanwhile is among the delayed ones.
        const counts = await this.queue.getJobCounts('waiting', 'prioritized', 'active');
        const delayed = (await this.queue.getDelayed()) as DeliveryJob[];
        const due = delayed.filter(({ data }) => data.dueAt <= this.clock.now());
        for (const job of due) await inState(job, 'delayed', async () => job.promote());
        return due.length > 0 || Object.values(counts).some((count) => count > 0);
      });
    } while (isBusy);
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    this.cancelMaintenance();
    await waitUntil(this.clock, deadline, Promise.allSettled(this.calls));
    const { worker, runner } = this;
    if (worker === undefined) return 0;
    await waitUntil(this.clock, deadline, worker.close());
    const left = runner!.running;
    // Abandoned: their leases expire and another process runs them.
    if (left > 0) void worker.abandon();
    return left;
  }

  /** Records deliveries. Concurrent calls of this process never both record an id. */
  private async record(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const items = new Map(deliveries.toReversed().map((item) => [item.delivery.id, item]));
    const own = [...items.keys()].filter((id) => !this.recording.has(id));
    for (const id of own) this.recording.add(id);
    try {
      const known = await this.add([...items.values()].toReversed());
      const fresh = new Set(own.filter((id) => !known.has(id)));
      const others = [...items.keys()].filter((id) => !fresh.has(id) && !known.has(id));
      for (const record of await this.read(others)) {
        if (record !== undefined) known.set(record.delivery.id, record);
      }
      return deliveries.map(({ delivery: { id } }) =>
        // Its twin in the same call was recorded with the first.
        fresh.delete(id) ? undefined : (known.get(id) ?? newRecord(items.get(id)!)),
      );
    } finally {
      for (const id of own) this.recording.delete(id);
    }
  }

  /** Adds the jobs that do not exist yet, all or none. @returns the records of the others, by id */
  private async add(items: readonly EnqueuedDelivery[]): Promise<Map<string, DeliveryRecord>> {
    const ids = items.map(({ delivery }) => delivery.id);
    const [records, turns, indexed] = await Promise.all([
      this.read(ids),
      this.turns.take(items.map(({ delivery }) => deliveryLane(delivery))),
      this.history.add(items.map(newRecord), this.clock.now()),
    ]);
    const jobs = items.flatMap((item, index) =>
      records[index] === undefined ? [this.newJob(item, turns[index]!)] : [],
    );
    try {
      const [first] = jobs;
      if (jobs.length === 1) await this.queue.add(first!.name, first!.data, first!.opts);
      // One MULTI: all or none.
      else if (jobs.length > 1) await this.queue.addBulk(jobs);
    } catch (error) {
      const added = ids.filter((_, index) => records[index] === undefined);
      void this.history.delete(added).catch(() => {});
      throw error;
    }
    if (indexed !== jobs.length) await this.repair(ids);
    return new Map(records.flatMap((record) => (record ? [[record.delivery.id, record]] : [])));
  }

  private newJob(
    item: EnqueuedDelivery,
    priority: number,
  ): Parameters<Queue['addBulk']>[0][number] {
    return {
      name: 'delivery',
      data: newJobData(item),
      opts: {
        jobId: jobIdOf(item.delivery.id),
        priority,
        // An error inside BullMQ, for example on a full server, must not end a delivery.
        attempts: UNLIMITED,
        backoff: { type: 'fixed', delay: FIRST_WAIT_AFTER_THROW },
        delay: Math.max(0, item.notBefore - this.clock.now()),
        removeOnComplete: false,
        removeOnFail: false,
      },
    };
  }

  /**
   * Makes a dead or waiting job due now.
   *
   * @returns whether the job was dead or waited for its next attempt
   */
  private async makeDue(job: DeliveryJob): Promise<boolean> {
    const now = this.clock.now();
    if (isDelivered(job)) return false;
    if (isDead(job)) {
      // Its worker has recorded the outcome, and BullMQ has yet to move it.
      if (job.finishedOn === undefined) return false;
      const data = newRound(job.data, now);
      const { delivery } = recordOf(job);
      const [priority] = await this.turns.take([deliveryLane(delivery)]);
      await job.changePriority({ priority: priority! });
      const state = { status: 'pending', attempts: 0, nextAttemptAt: now, updatedAt: now } as const;
      await this.history.set({ delivery, ...state }, now);
      await job.updateData(data);
      return inState(job, 'failed', async () => job.retry('failed'));
    }
    if (job.data.dueAt <= now) return false;
    if (!(await inState(job, 'delayed', async () => job.promote()))) return false;
    await this.history.set({ ...recordOf(job), nextAttemptAt: now }, now);
    return true;
  }

  private async job(id: string): Promise<DeliveryJob | undefined> {
    return (await this.queue.getJob(jobIdOf(id))) as DeliveryJob | undefined;
  }

  private async read(ids: readonly string[]): Promise<(DeliveryRecord | undefined)[]> {
    return Promise.all(
      ids.map(async (id) => {
        const job = await this.job(id);
        return job && recordOf(job, await this.latestStart(job));
      }),
    );
  }

  /** Now, for a job that was brought forward. */
  private async latestStart(job: DeliveryJob): Promise<number> {
    const now = this.clock.now();
    if (job.delay > 0 || job.data.dueAt <= now || job.finishedOn !== undefined) return Infinity;
    return ['waiting', 'prioritized'].includes(await job.getState()) ? now : Infinity;
  }

  /** @returns how many were removed */
  private async remove(ids: readonly string[]): Promise<number> {
    const removed = await Promise.all(ids.map(async (id) => this.queue.remove(jobIdOf(id))));
    await this.history.delete(ids.filter((_, index) => removed[index] === 1));
    return removed.filter((count) => count === 1).length;
  }

  private async repair(ids: readonly string[]): Promise<void> {
    const now = this.clock.now();
    const read = async (some: readonly string[]) => this.read(some);
    await this.history.repair(ids, read, { before: now - SETTLING, now });
  }

  /** Removes old deliveries, and checks a part of the history, every few seconds. */
  private maintain(): void {
    this.cancelMaintenance();
    this.cancelMaintenance = this.clock.wakeAt(this.clock.now() + MAINTENANCE, () => {
      if (this.stopping) return;
      // The next one makes up for an error.
      this.request(async () => this.removeOld())
        .then(async () => this.request(async () => this.checkHistory()))
        .catch(() => {})
        .finally(() => this.maintain());
    });
  }

  private async removeOld(): Promise<void> {
    await this.clean(this.options.keepDelivered, REMOVED);
    const excess = (await this.queue.getCompletedCount()) - this.options.maxDelivered;
    if (excess > 0) await this.clean(0, excess);
  }

  /** Removes the delivered deliveries that were done so many milliseconds ago, the oldest first. */
  private async clean(grace: number, limit: number): Promise<void> {
    const removed = await this.queue.clean(grace, limit, 'completed');
    await this.history.delete(removed.map(deliveryIdOf));
  }

  private async checkHistory(): Promise<void> {
    const { ids, next } = await this.history.list({}, { after: this.checkedTo, limit: CHECKED });
    this.checkedTo = next;
    const unwritten = [...this.history.unwritten].slice(0, CHECKED);
    await this.repair([...ids, ...unwritten]);
    for (const id of unwritten) this.history.unwritten.delete(id);
  }

  private onError(error: unknown): void {
    this.lastError = error;
    if (this.isOut || this.stopping || !isRedisOutage(error)) return;
    this.isOut = true;
    const { message } = redisFailure('The delivery queue', this.queue.opts.connection, error);
    process.emitWarning(`${message}. Deliveries wait; the queue tries again every second.`, {
      code: 'WEBHOOK_QUEUE_UNAVAILABLE',
    });
  }

  /** Limits the time: a client may wait for its server without end. */
  private async request<T>(command: () => Promise<T>): Promise<T> {
    const noAnswer = (): Error => {
      void reconnect(this.queue);
      return (this.lastError ?? new Error('no answer')) as Error;
    };
    try {
      return await inTime(this.clock, this.options.timeout, command, noAnswer);
    } catch (cause) {
      throw redisFailure('The delivery queue', this.queue.opts.connection, cause);
    }
  }

  private refuseWhenStopping(): void {
    if (this.stopping) {
      throw new WebhookDeliveryError(
        'shutting_down',
        'The delivery queue is stopped, because the application is shutting down.',
      );
    }
  }
}

function newRecord({ delivery, notBefore: nextAttemptAt }: EnqueuedDelivery): DeliveryRecord {
  const updatedAt = delivery.createdAt;
  return { delivery, status: 'pending', attempts: 0, nextAttemptAt, updatedAt };
}

function withoutPayload({ delivery, ...state }: DeliveryRecord): ListedDelivery {
  const { payload: _, ...facts } = delivery;
  return { ...state, delivery: facts };
}

/** @returns `false` if the job had left the state before the change */
async function inState(
  job: DeliveryJob,
  state: 'failed' | 'delayed',
  change: () => Promise<void>,
): Promise<boolean> {
  try {
    await change();
    return true;
  } catch (error) {
    if ((await job.getState()) === state) throw error;
    return false;
  }
}
