import type { Queue } from 'bullmq';
import {
  type CancelWake,
  inTime,
  repeat,
  repeatInBatches,
  waitUntil,
  type WebhookClock,
} from '../clock/webhook-clock.js';
import { servesAnother } from '../queue/queue-options.js';
import type { DeliveryAttempt, DeliveryLimits, DeliveryRecord } from '../queue/webhook-delivery.js';
import {
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type ListedDelivery,
  type DeliveryHandler,
  type EnqueuedDelivery,
  type EnqueueOptions,
  WebhookQueue,
  queueStopped,
} from '../queue/webhook-queue.js';
import { isRedisOutage, redisFailure, ReplicaExit } from '../redis/redis-failure.js';
import {
  type BullMqQueueOptions,
  resolveBullMqOptions,
  type ResolvedBullMqOptions,
} from './bullmq-queue-options.js';
import { DeliveryHistory, type HistoryFilter } from './delivery-history.js';
import { type DeliveryJob, holdsDelivery, inState } from './delivery-job.js';
import { DeliveryRunner } from './delivery-runner.js';
import { DeliveryWorker, reconnect } from './delivery-worker.js';
import { FairTurns } from './fair-turns.js';
import { KeyTurns } from './key-turns.js';
import { LaneGate } from './lane-gate.js';
import { QueueScript } from './queue-script.js';
import { SharedLimits } from './shared-limits.js';
import { warnAboutServer } from './redis-server.js';
import { REMOVED, StoredDeliveries } from './stored-deliveries.js';

/** Milliseconds between two rounds of maintenance. */
const MAINTENANCE = 5_000;

const CHECK = new QueueScript(
  'webhooksCheck',
  `return redis.call('SET', KEYS[1] .. ':check', '', 'PX', 1000)`,
);

interface LastError {
  error: unknown;
}

/** Of each BullMQ queue: several applications may share it, one after the other, and a listener of each would keep them in memory. */
const lastErrors = new WeakMap<Queue, LastError>();

/** The last error of the connection of a queue. BullMQ reconnects without reporting it to callers. */
function lastErrorOf(queue: Queue): LastError {
  const known = lastErrors.get(queue);
  if (known !== undefined) return known;
  const last: LastError = { error: undefined };
  lastErrors.set(queue, last);
  // Reported to callers; without a listener BullMQ prints it.
  (queue as Partial<Queue>).on?.('error', (error) => (last.error = error));
  return last;
}

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
  private readonly keys: KeyTurns;
  private readonly limits: SharedLimits;
  private readonly deliveries: StoredDeliveries;
  private readonly replicaExit: ReplicaExit;
  private worker: DeliveryWorker | undefined;
  private runner: DeliveryRunner | undefined;
  private stopMaintenance: CancelWake = () => {};
  private stopping = false;
  /** Calls of `enqueue` without an answer. */
  private readonly calls = new Set<Promise<unknown>>();
  /** Resolves when the connection is not being replaced. */
  private replaced: Promise<unknown> = Promise.resolve();
  private readonly last: LastError;
  private isOut = false;
  private hasReported = false;

  /**
   * @param queue - used for deliveries only, and closed by the application. Set `enableOfflineQueue: false` on its
   *   connection, so that publishing fails at once while Redis is unavailable.
   * @throws `WebhookConfigurationError`
   */
  constructor(
    private readonly queue: Queue,
    options?: BullMqQueueOptions,
  ) {
    super();
    this.options = resolveBullMqOptions(queue, options);
    this.clock = this.options.clock;
    this.lanes = new LaneGate(this.options, this.clock);
    this.turns = new FairTurns(queue);
    this.history = new DeliveryHistory(queue, this.options.keepPayloads !== undefined);
    this.keys = new KeyTurns(queue, this.clock);
    this.limits = new SharedLimits(queue, this.clock, this.options.lease);
    const { clock, history, turns, keys, limits } = this;
    const replaceConnection = async (): Promise<void> => this.replaceConnection();
    const parts = { queue, history, turns, keys, limits, clock, replaceConnection };
    this.deliveries = new StoredDeliveries(parts);
    this.replicaExit = new ReplicaExit(clock, () => void this.replaceConnection());
    this.last = lastErrorOf(queue);
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { check }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    this.refuseWhenStopping();
    const call = this.record(deliveries, check);
    this.calls.add(call);
    try {
      return await call;
    } finally {
      this.calls.delete(call);
    }
  }

  private async record(
    deliveries: readonly EnqueuedDelivery[],
    check: EnqueueOptions['check'],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    check?.(await this.find(deliveries.map(({ delivery }) => delivery.id)));
    return this.request(async (signal) => this.deliveries.record(deliveries, signal));
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    if (this.stopping) throw this.worker === undefined ? queueStopped() : servesAnother(true);
    const { clock, history, keys, lanes, limits, turns } = this;
    const { concurrency, lease, timeout } = this.options;
    const runner = new DeliveryRunner({
      handler,
      lanes,
      turns,
      keys,
      limits,
      history,
      onError: (error) => this.onError(error),
      lease,
      clock,
    });
    this.runner ??= runner;
    // Created once: a worker that waits for Redis starts by itself when it is back.
    this.worker ??= new DeliveryWorker(this.queue, {
      process: async (job, token) => runner.process(job, token),
      onError: (error) => this.onError(error),
      onWorking: () => this.onWorking(),
      onEnded: (job) => keys.ended(job),
      onDrained: () => void turns.restart().catch(() => {}),
      concurrency,
      lease,
      timeout,
    });
    const { worker } = this;
    this.stopMaintenance();
    const stops = [
      repeatInBatches(this.clock, MAINTENANCE, async () => this.removeOld()),
      repeat(this.clock, MAINTENANCE, async () => this.maintain()),
    ];
    this.stopMaintenance = () => stops.forEach((stop) => stop());
    limits.start();
    await this.request(async () => worker.waitUntilReady());
    await warnAboutServer(this.queue);
  }

  override async find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]> {
    return this.request(async () => this.deliveries.read(ids));
  }

  override async list(
    filter: DeliveryFilter,
    { after, limit }: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    const listed: ListedDelivery[] = [];
    let next = after;
    do {
      const page = { after: next, limit: limit - listed.length };
      const step = await this.request(async () => this.deliveries.page(filter, page));
      listed.push(...step.found);
      ({ next } = step);
    } while (next !== undefined && listed.length < limit);
    return listed;
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    return this.request(async () => this.deliveries.attempts(id));
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    return this.request(async () => this.history.counts(filter));
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    return this.changeEach(ids, async (id) => this.deliveries.redeliver(id));
  }

  override async skip(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    return this.changeEach(ids, async (id) => this.deliveries.skip(id));
  }

  /** @returns the ids for which `change` resolved with `true` */
  private async changeEach(
    ids: readonly string[],
    change: (id: string) => Promise<boolean>,
  ): Promise<readonly string[]> {
    const changed: string[] = [];
    for (const id of new Set(ids)) {
      if (await this.request(async () => change(id))) changed.push(id);
    }
    return changed;
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    const delivered = await this.removeAll({ tenant, status: 'delivered', until: before });
    return delivered + (await this.removeAll({ tenant, status: 'dead', until: before }));
  }

  override async erase(filter: DeliveryFilter): Promise<number> {
    return this.removeAll(filter);
  }

  /** Removes the deliveries that match. They release their ordering keys. */
  private async removeAll(filter: HistoryFilter): Promise<number> {
    let count = 0;
    let after: DeliveryPageRequest['after'];
    do {
      const page = { after, limit: REMOVED };
      const { found, next } = await this.request(async () => this.deliveries.page(filter, page));
      const gone = found.map(({ delivery }) => delivery);
      count += await this.request(async () => this.deliveries.remove(gone));
      after = next;
    } while (after !== undefined);
    return count;
  }

  override async limitLane(lane: string, limits: DeliveryLimits): Promise<void> {
    await this.request(async () => this.limits.set(lane, limits));
  }

  /** BullMQ has its own clock, so jobs that are due by the queue's clock are promoted. */
  override async flush(): Promise<void> {
    if (this.worker === undefined) return;
    let isBusy: boolean;
    do {
      isBusy = await this.request(async () => {
        const hasWoken = (await this.keys.settled()) || (await this.limits.settled());
        // In this order: a job that ends its run meanwhile is among the delayed ones.
        const counts = await this.queue.getJobCounts('waiting', 'prioritized', 'active');
        const delayed = (await this.queue.getDelayed()) as DeliveryJob[];
        const due = await this.deliveries.withoutWaiting(
          delayed.filter((job) => holdsDelivery(job) && job.data.dueAt <= this.clock.now()),
        );
        for (const job of due) await inState(job, 'delayed', async () => job.promote());
        return hasWoken || due.length > 0 || Object.values(counts).some((count) => count > 0);
      });
    } while (isBusy);
  }

  /** Writes a key that expires: a replica and a full server refuse it. */
  override async check(): Promise<void> {
    await this.request(async () => CHECK.run(this.queue, []));
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    this.stopMaintenance();
    const recorded = Promise.allSettled(this.calls).then(async () => this.keys.settled());
    await waitUntil(this.clock, deadline, recorded);
    const { worker, runner } = this;
    // BullMQ cannot close a queue whose connection is being replaced.
    await waitUntil(this.clock, deadline, Promise.all([worker?.close(), this.replaced]));
    this.limits.stop();
    const left = runner?.running ?? 0;
    // What it has not finished is abandoned: leases expire, and another process runs it.
    void worker?.abandon();
    return left;
  }

  /** Removes a batch of delivered deliveries. @returns whether there may be more */
  private async removeOld(): Promise<boolean> {
    const { keepDelivered, maxDelivered } = this.options;
    return this.request(async () => this.deliveries.removeOld(keepDelivered, maxDelivered));
  }

  /** Removes old dead deliveries and payloads, and checks a part of the history. */
  private async maintain(): Promise<void> {
    const { keepDead, keepPayloads } = this.options;
    if (keepDead !== undefined) {
      const until = this.clock.now() - keepDead;
      // Those that block their keys stay, and are not even read: there may be many.
      await this.removeAll({ status: 'dead', until, keyState: 'none' });
    }
    if (keepPayloads !== undefined) {
      const until = this.clock.now() - keepPayloads;
      while (await this.request(async () => this.deliveries.dropPayloads(until)));
    }
    try {
      await this.request(async () => this.deliveries.checkHistory());
    } finally {
      await this.request(async () => this.keys.checkOpen());
    }
  }

  private onWorking(): void {
    if (this.isOut) this.lanes.recordOutage();
    this.isOut = false;
  }

  private onError(error: unknown): void {
    this.last.error = error;
    if (!isRedisOutage(error)) return this.reportOnce(error);
    this.lanes.recordOutage();
    if (this.isOut || this.stopping) return;
    this.isOut = true;
    const { message } = redisFailure('The delivery queue', this.queue.opts.connection, error);
    process.emitWarning(`${message}. Deliveries wait until it can be used again.`, {
      code: 'WEBHOOK_QUEUE_UNAVAILABLE',
    });
  }

  /** Such an error may come with every job. */
  private reportOnce(error: unknown): void {
    if (this.hasReported || this.stopping) return;
    this.hasReported = true;
    const { name, message } = error as Error;
    // A reply of the server may quote a command, and with it a payload.
    const text = name === 'ReplyError' ? message.split(' ', 1)[0] : message;
    process.emitWarning(
      `The worker of the delivery queue had an error, and continues: ${text}. Later ones are not reported.`,
      { code: 'WEBHOOK_QUEUE_ERROR' },
    );
  }

  /** Limits the time of one step: a client may wait for its server without end. */
  private async request<T>(command: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const rejection = new AbortController();
    const noAnswer = (): Error => {
      void this.replaceConnection();
      const cause = this.connectionError(new Error('no answer'));
      rejection.abort(cause);
      return cause;
    };
    const work = async (): Promise<T> => command(rejection.signal);
    try {
      return await inTime(this.clock, this.options.timeout, work, noAnswer);
    } catch (cause) {
      this.replicaExit.after(cause);
      const message = String((cause as Error | null)?.message);
      // ioredis takes a script for loaded that was sent in a refused MULTI. It sends it again on a new connection.
      if (/^EXECABORT\b/.test(message)) void this.replaceConnection();
      // What ioredis says without an offline queue while it has no connection.
      const isOffline = message.includes('enableOfflineQueue');
      const known = isOffline ? this.connectionError(cause) : cause;
      throw redisFailure('The delivery queue', this.queue.opts.connection, known);
    }
  }

  /** Why there is no connection, if that is known. */
  private connectionError<Otherwise>(otherwise: Otherwise): Error | Otherwise {
    const { error } = this.last;
    return isRedisOutage(error) ? (error as Error) : otherwise;
  }

  private async replaceConnection(): Promise<void> {
    this.replaced = Promise.all([this.replaced, reconnect(this.queue)]);
    await this.replaced;
  }

  private refuseWhenStopping(): void {
    if (this.stopping) throw queueStopped();
  }
}
