import { DelayedError, type Queue, UnrecoverableError } from 'bullmq';
import type { Duration } from '../clock/duration.js';
import { inTime, SystemClock, waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError, WebhookDeliveryError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import {
  FIRST_WAIT_AFTER_THROW,
  pendingReceipt,
  progressAfter,
  wasAttempt,
} from '../queue/delivery-progress.js';
import {
  type DeadDelivery,
  type DeliveryHandler,
  type DeliveryOutcome,
  WebhookQueue,
  type DeliveryReceipt,
  type EnqueuedDelivery,
  type KnownDelivery,
  type QueueCounts,
} from '../queue/webhook-queue.js';
import { requireCount, resolveConcurrency } from '../queue/lane-slots.js';
import { deliveryLane } from '../queue/stored-delivery.js';
import { redisFailure } from '../redis/redis-failure.js';
import {
  deadDelivery,
  type DeliveryJob,
  type DeliveryJobData,
  deliveryOf,
  failureText,
  jobData,
  makeDue,
  receiptOf,
} from './delivery-job.js';
import { DeliveryWorker } from './delivery-worker.js';
import { JobRecorder, type NewJob } from './job-recorder.js';
import { LaneGate } from './lane-gate.js';
import { warnIfNotDurable } from './redis-durability.js';

/** Concurrency, leases and retention of a {@link BullMqQueue}. */
export interface BullMqQueueOptions {
  /** Attempts that run at once in this process; default 50. */
  readonly concurrency?: number | undefined;
  /**
   * Attempts that run at once to one endpoint or origin; default a quarter of `concurrency`, at least 1. Endpoints that
   * take longer than a second share a fifth of `concurrency`.
   */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long the id of a delivered delivery is remembered; default `'96h'`. */
  readonly keepDelivered?: Duration | undefined;
  /** How many delivered ids are remembered at most; default 100,000. */
  readonly maxDelivered?: number | undefined;
  /** How long after a crash an interrupted attempt runs again; default `'30s'`, at least `'5s'`. */
  readonly lease?: Duration | undefined;
  /** Default: the system clock. The clocks of all processes must agree to within seconds. */
  readonly clock?: WebhookClock | undefined;
}

/** Milliseconds. */
const DEFAULT_KEEP = 96 * 3_600_000;
const DEFAULT_LEASE = 30_000;
const LEAST_LEASE = 5_000;
/** How long a caller waits for Redis. */
const COMMAND_TIMEOUT = 10_000;
/** BullMQ counts a crash as an attempt; no number of crashes may end a delivery. */
const UNLIMITED = Number.MAX_SAFE_INTEGER;

const JOB = 'delivery';

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
  private readonly concurrency: number;
  private readonly keep: { age: number; count: number };
  private readonly lease: number;
  private readonly lanes: LaneGate;
  private readonly recorder: JobRecorder;
  private worker: DeliveryWorker<DeliveryJobData, number> | undefined;
  private stopping = false;
  private running = 0;
  /** Runs since the start, and those whose outcome is not recorded yet. */
  private started = 0;
  private unsettled = 0;
  /** The last connection error. BullMQ reconnects without reporting it to callers. */
  private lastError: unknown;

  /**
   * @param queue - used for deliveries only, and closed by the application. Set `enableOfflineQueue: false` on its
   *   connection, so that publishing fails at once while Redis is unavailable.
   * @throws {@link WebhookConfigurationError}
   */
  constructor(
    private readonly queue: Queue,
    options: BullMqQueueOptions = {},
  ) {
    super();
    const { maxDelivered = 100_000, clock = new SystemClock() } = options;
    const faults = new ConfigurationFaults('BullMqQueue');
    const { concurrency, concurrencyPerDestination } = resolveConcurrency(options, faults);
    requireCount('maxDelivered', maxDelivered, faults);
    const age = faults.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP);
    this.lease = faults.duration('lease', options.lease, DEFAULT_LEASE);
    faults.require(this.lease >= LEAST_LEASE, 'lease', "must be at least '5s'");
    faults.require(
      typeof (queue as Partial<Queue> | undefined)?.addBulk === 'function',
      'queue',
      'must be a Queue of bullmq; inject it with getQueueToken(name), or create one with new Queue(name)',
    );
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.concurrency = concurrency;
    this.keep = { age: Math.ceil(age / 1_000), count: maxDelivered };
    this.lanes = new LaneGate({ concurrency, concurrencyPerDestination }, clock);
    this.clock = clock;
    this.recorder = new JobRecorder(queue, (delivery) => this.jobOf(delivery));
    // Reported to callers; without a listener BullMQ prints it.
    (queue as Partial<Queue>).on?.('error', (error) => (this.lastError = error));
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly DeliveryReceipt[]> {
    this.refuseWhenStopping();
    return this.request(async () => this.record(deliveries));
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { connection, prefix } = this.queue.opts;
    // Created once: a worker that waits for Redis starts by itself when it is back.
    this.worker ??= new DeliveryWorker<DeliveryJobData, number>(
      this.queue.name,
      async (job, token) => this.process(job, token, handler),
      {
        connection,
        ...(prefix !== undefined && { prefix }),
        concurrency: this.concurrency,
        lockDuration: this.lease,
        stalledInterval: this.lease,
        maxStalledCount: UNLIMITED,
      },
      // BullMQ reconnects by itself; without a listener a connection error would end the process.
    ).on('error', (error) => (this.lastError = error));
    const { worker } = this;
    await this.request(async () => worker.waitUntilReady());
    await warnIfNotDurable(this.queue);
  }

  override async find(ids: readonly string[]): Promise<readonly (KnownDelivery | undefined)[]> {
    return this.request(async () => Promise.all(ids.map(async (id) => this.receipt(id))));
  }

  override async listDead(): Promise<readonly DeadDelivery[]> {
    return this.request(async () => {
      const jobs = (await this.queue.getFailed(0, -1)) as DeliveryJob[];
      return jobs.map(deadDelivery).sort((a, b) => a.diedAt - b.diedAt);
    });
  }

  override async counts(): Promise<QueueCounts> {
    return this.request(async () => {
      const { failed = 0, ...pending } = await this.queue.getJobCounts(
        'waiting',
        'prioritized',
        'delayed',
        'active',
        'failed',
      );
      return {
        pending: Object.values(pending).reduce((sum, count) => sum + count, 0),
        dead: failed,
      };
    });
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    return this.request(async () => {
      const changed: string[] = [];
      for (const id of new Set(ids)) {
        const job = (await this.queue.getJob(id)) as DeliveryJob | undefined;
        if (job !== undefined && (await makeDue(job, this.clock.now()))) changed.push(id);
      }
      return changed;
    });
  }

  /** BullMQ has its own clock, so jobs that are due by the queue's clock are promoted. */
  override async flush(): Promise<void> {
    if (this.worker === undefined) return;
    while (await this.request(async () => this.promoteDue()));
  }

  /** @returns whether a job may be due or running */
  private async promoteDue(): Promise<boolean> {
    const { started, unsettled } = this;
    const delayed = (await this.queue.getDelayed()) as DeliveryJob[];
    // A job that is put off is moved before its data is updated. If one was settled meanwhile, its due time may be the old one.
    if (unsettled > 0 || this.unsettled > 0 || this.started > started) return true;
    const due = delayed.filter(({ data }) => data.dueAt <= this.clock.now());
    for (const job of due) await makeDue(job, this.clock.now());
    const counts = await this.queue.getJobCounts('waiting', 'prioritized', 'active');
    return due.length > 0 || Object.values(counts).some((count) => count > 0);
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    await waitUntil(this.clock, deadline, this.recorder.settled());
    const { worker } = this;
    if (worker === undefined) return 0;
    if (!(await isConnected(worker))) {
      // A graceful close would wait for Redis and keep the process alive.
      await waitUntil(this.clock, deadline, worker.close(true));
      return this.running;
    }
    await waitUntil(this.clock, deadline, worker.close());
    const left = this.running;
    // Running jobs are abandoned: their leases expire and another process runs them. A second, forced close has no
    // effect, so the connections are ended.
    if (left > 0) void worker.disconnect().catch(() => {});
    return left;
  }

  private async record(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly DeliveryReceipt[]> {
    const recorded = await this.recorder.record(deliveries);
    return Promise.all(
      deliveries.map(async ({ delivery, notBefore }): Promise<DeliveryReceipt> => {
        const { id } = delivery;
        if (recorded.delete(id)) return { id, status: 'recorded' };
        // It may be delivered, and no longer be remembered, by now.
        return (await this.receipt(id)) ?? pendingReceipt(delivery, jobData(delivery, notBefore));
      }),
    );
  }

  private async process(
    job: DeliveryJob,
    token: string | undefined,
    handler: DeliveryHandler,
  ): Promise<number> {
    this.started++;
    this.unsettled++;
    try {
      return await this.run(job, token, handler);
    } finally {
      this.unsettled--;
    }
  }

  private async run(
    job: DeliveryJob,
    token: string | undefined,
    handler: DeliveryHandler,
  ): Promise<number> {
    const delivery = deliveryOf(job.data);
    const lane = deliveryLane(delivery);
    const slot = await this.lanes.enter(lane);
    if (slot === undefined) return this.putOff(job, token, { dueAt: this.lanes.retryAt(lane) });
    this.running++;
    let outcome: DeliveryOutcome | undefined;
    try {
      outcome = await handler(delivery, job.data.attempts + 1);
    } catch {
      // The handler has logged the error; the delivery runs again.
    } finally {
      this.running--;
      this.lanes.leave(slot, wasAttempt(outcome));
    }
    return this.settle(job, token, outcome);
  }

  private async settle(
    job: DeliveryJob,
    token: string | undefined,
    outcome: DeliveryOutcome | undefined,
  ): Promise<number> {
    switch (outcome?.type) {
      case 'delivered':
        return job.data.attempts + 1;
      case 'dead':
        throw new UnrecoverableError(failureText(outcome.reason, outcome.attempts));
      default:
        return this.putOff(job, token, progressAfter(job.data, outcome, this.clock.now()));
    }
  }

  /** Moves the job first, which fails if the lease has expired; a crash in between loses a count, not the delivery. */
  private async putOff(
    job: DeliveryJob,
    token: string | undefined,
    change: ReturnType<typeof progressAfter>,
  ): Promise<never> {
    await job.moveToDelayed(change.dueAt, token);
    await job.updateData({ ...job.data, ...change });
    throw new DelayedError();
  }

  private jobOf({ delivery, notBefore }: EnqueuedDelivery): NewJob {
    return {
      name: JOB,
      data: jobData(delivery, notBefore),
      opts: {
        jobId: delivery.id,
        // An error inside BullMQ, for example on a full server, must not end a delivery.
        attempts: UNLIMITED,
        backoff: { type: 'fixed', delay: FIRST_WAIT_AFTER_THROW },
        delay: Math.max(0, notBefore - this.clock.now()),
        removeOnComplete: this.keep,
        removeOnFail: false,
      },
    };
  }

  private async receipt(id: string): Promise<KnownDelivery | undefined> {
    const job = (await this.queue.getJob(id)) as DeliveryJob | undefined;
    return job && receiptOf(job, await job.getState(), this.clock.now());
  }

  private async request<T>(command: () => Promise<T>): Promise<T> {
    const noAnswer = (): Error => (this.lastError ?? new Error('no answer')) as Error;
    try {
      return await inTime(this.clock, COMMAND_TIMEOUT, command, noAnswer);
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

async function isConnected(worker: DeliveryWorker<DeliveryJobData, number>): Promise<boolean> {
  // Pending until the client has been connected once.
  const client = worker.getBackend().client.catch(() => undefined);
  const turn = new Promise<undefined>((resolve) => setImmediate(() => resolve(undefined)));
  return (await Promise.race([client, turn]))?.status === 'ready';
}
