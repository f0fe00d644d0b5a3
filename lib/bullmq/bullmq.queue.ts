import { DelayedError, type Queue, UnrecoverableError } from 'bullmq';
import type { Duration } from '../clock/duration.js';
import {
  type CancelWake,
  SystemClock,
  waitUntil,
  type WebhookClock,
} from '../clock/webhook-clock.js';
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
  receiptOf,
} from './delivery-job.js';
import { DeliveryWorker } from './delivery-worker.js';
import { LaneGate } from './lane-gate.js';

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
  private worker: DeliveryWorker<DeliveryJobData, number> | undefined;
  private stopping = false;
  private running = 0;
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
    // Reported to callers; without a listener BullMQ prints it.
    (queue as Partial<Queue>).on?.('error', (error) => (this.lastError = error));
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly DeliveryReceipt[]> {
    this.refuseWhenStopping();
    return this.request(async () => {
      const known = await Promise.all(deliveries.map(({ delivery }) => this.receipt(delivery.id)));
      const fresh = deliveries.filter((_, index) => known[index] === undefined);
      // One MULTI records all or none. A job whose id was taken in the meantime is left as it is.
      if (fresh.length > 0) await this.queue.addBulk(fresh.map((item) => this.jobOf(item)));
      const recorded = new Map<string, EnqueuedDelivery>();
      return deliveries.map((item, index): DeliveryReceipt => {
        const { id } = item.delivery;
        if (known[index] !== undefined) return known[index];
        const first = recorded.get(id);
        if (first !== undefined) {
          return pendingReceipt(first.delivery, jobData(first.delivery, first.notBefore));
        }
        recorded.set(id, item);
        return { id, status: 'recorded' };
      });
    });
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { connection, prefix } = this.queue.opts;
    // Created once: a worker that waits for Redis starts by itself when it is back.
    this.worker ??= new DeliveryWorker<DeliveryJobData, number>(
      this.queue.name,
      async (job, token) => this.run(job, token, handler),
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
    await this.warnIfNotDurable();
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

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    return this.request(async () => {
      const changed: string[] = [];
      for (const id of new Set(ids)) {
        const job = (await this.queue.getJob(id)) as DeliveryJob | undefined;
        if (job !== undefined && (await this.makeDue(job))) changed.push(id);
      }
      return changed;
    });
  }

  /** @returns whether the job was dead or waited for its next attempt */
  private async makeDue(job: DeliveryJob): Promise<boolean> {
    switch (await job.getState()) {
      case 'failed':
        await job.updateData(jobData(deliveryOf(job.data), this.clock.now()));
        return changedState(job, 'failed', async () => job.retry('failed'));
      case 'delayed':
        return changedState(job, 'delayed', async () => job.promote());
      default:
        return false;
    }
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
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

  private async warnIfNotDurable(): Promise<void> {
    // A managed server may not allow INFO.
    const faults = await durabilityFaults(this.queue).catch(() => []);
    for (const fault of faults) {
      process.emitWarning(`Redis can lose webhook deliveries: ${fault}`, {
        code: 'WEBHOOK_QUEUE_MAY_LOSE',
      });
    }
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

  private jobOf({
    delivery,
    notBefore,
  }: EnqueuedDelivery): Parameters<Queue['addBulk']>[0][number] {
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
    let cancel: CancelWake = () => {};
    const timeout = new Promise<never>((_, reject) => {
      const end = this.clock.now() + COMMAND_TIMEOUT;
      cancel = this.clock.wakeAt(end, () => reject(this.lastError ?? new Error('no answer')));
    });
    try {
      return await Promise.race([command(), timeout]);
    } catch (cause) {
      throw redisFailure('The delivery queue', this.queue.opts.connection, cause);
    } finally {
      cancel();
    }
  }

  private refuseWhenStopping(): void {
    if (this.stopping) {
      throw new WebhookDeliveryError(
        'shutting_down',
        'The delivery queue is stopped; publish before the application shuts down.',
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

/** @returns `false` if the job had left the state before the change */
async function changedState(
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

/** Lists the settings of the server with which it can lose deliveries. */
export async function durabilityFaults(queue: Queue): Promise<string[]> {
  const client = await queue.getBackend().client;
  const info = await client.info();
  const faults: string[] = [];
  if (/^aof_enabled:0/m.test(info)) {
    faults.push(
      'its append-only file is off, so a restart loses pending deliveries; set "appendonly yes"',
    );
  }
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1] ?? 'noeviction';
  if (policy !== 'noeviction') {
    faults.push(
      `its maxmemory-policy is ${policy}, so a full server deletes deliveries; set "maxmemory-policy noeviction"`,
    );
  }
  return faults;
}
