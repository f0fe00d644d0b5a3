import { DelayedError, UnrecoverableError, Worker, type Queue } from 'bullmq';
import type { Duration } from '../clock/duration.js';
import { SystemClock } from '../clock/system-clock.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { ConfigurationFaults } from '../errors/configuration-faults.js';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import { WebhookDeliveryError } from '../errors/webhook-delivery.error.js';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import {
  DeliveryQueue,
  type DeadDelivery,
  type DeliveryHandler,
  type DeliveryOutcome,
  type DeliveryReceipt,
  type EnqueuedDelivery,
  type KnownDelivery,
} from '../publisher/queue/delivery-queue.js';
import { deliveryLane } from '../publisher/queue/delivery-lane.js';
import { durabilityFaults } from './redis-durability.js';
import { LaneCounts } from './delivery-lanes.js';
import {
  deadDelivery,
  deliveryOf,
  failureText,
  jobData,
  receiptOf,
  type DeliveryJob,
} from './delivery-job.js';

/** How much runs at once, and what is kept. */
export interface BullMqDeliveryQueueOptions {
  /** Attempts that this process runs at once; default 50. */
  readonly concurrency?: number | undefined;
  /** Those of them that go to one endpoint, or one origin; default a quarter of `concurrency`, at least 1. */
  readonly concurrencyPerDestination?: number | undefined;
  /** How long a delivered one is known by its id; default `'96h'`. */
  readonly keepDelivered?: Duration | undefined;
  /** How many delivered ones are known at most, the last ones; default 100,000. */
  readonly maxDelivered?: number | undefined;
  /** How long after a crash of its process an attempt runs again; default `'30s'`, at least `'5s'`. */
  readonly lease?: Duration | undefined;
  /** Default: the machine's clock, which must agree with that of the other processes to within seconds. */
  readonly clock?: WebhookClock | undefined;
}

/** Milliseconds. */
const DEFAULT_KEEP = 96 * 3_600_000;
const DEFAULT_LEASE = 30_000;
const LEAST_LEASE = 5_000;
/** Until a delivery whose destination has all its slots is looked at again. */
const LANE_WAIT = 200;
const FIRST_WAIT_AFTER_THROW = 1_000;
const LONGEST_WAIT_AFTER_THROW = 300_000;
/** A crash costs a job one of these, and must never cost a delivery its life. */
const NEVER = Number.MAX_SAFE_INTEGER;

const JOB = 'delivery';

/**
 * Keeps deliveries in Redis, through BullMQ: shared by any number of processes, and as durable as the
 * server's append-only file. It cannot join a database transaction.
 *
 * ```ts
 * WebhookModule.forRootAsync({
 *   imports: [BullModule.registerQueue({ name: 'webhooks' })],
 *   inject: [getQueueToken('webhooks')],
 *   useFactory: (queue: Queue) => ({ publisher: { …, queue: new BullMqDeliveryQueue(queue) } }),
 * })
 * ```
 */
export class BullMqDeliveryQueue extends DeliveryQueue {
  override readonly durable = true;
  override readonly shared = true;
  override readonly transactional = false;

  private readonly clock: WebhookClock;
  private readonly concurrency: number;
  private readonly keep: { age: number; count: number };
  private readonly lease: number;
  private readonly lanes: LaneCounts;
  private worker: Worker | undefined;
  private stopping = false;
  private running = 0;

  /**
   * @param queue - for deliveries alone; closing it stays the application's. Its connection should have
   *   `enableOfflineQueue: false`, so that publishing fails at once while Redis is away.
   * @throws {@link WebhookConfigurationError}
   */
  constructor(
    private readonly queue: Queue,
    options: BullMqDeliveryQueueOptions = {},
  ) {
    super();
    const { concurrency = 50, maxDelivered = 100_000, clock = new SystemClock() } = options;
    const perDestination =
      options.concurrencyPerDestination ?? Math.max(1, Math.floor(concurrency / 4));
    const faults = new ConfigurationFaults('BullMqDeliveryQueue');
    for (const [name, bound] of Object.entries({
      concurrency,
      concurrencyPerDestination: perDestination,
      maxDelivered,
    })) {
      faults.require(
        Number.isSafeInteger(bound) && bound > 0,
        name,
        'must be a whole number above 0',
      );
    }
    const age = faults.duration('keepDelivered', options.keepDelivered, DEFAULT_KEEP);
    this.lease = faults.duration('lease', options.lease, DEFAULT_LEASE);
    faults.require(this.lease >= LEAST_LEASE, 'lease', "must be at least '5s'");
    faults.require(
      typeof (queue as Partial<Queue> | undefined)?.addBulk === 'function',
      'queue',
      'must be a Queue of bullmq: inject it with getQueueToken(name), or make one with new Queue(name)',
    );
    if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
    this.concurrency = concurrency;
    this.keep = { age: Math.ceil(age / 1_000), count: maxDelivered };
    this.lanes = new LaneCounts(perDestination);
    this.clock = clock;
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly DeliveryReceipt[]> {
    this.refuseWhenStopping();
    return this.ask(async () => {
      const known = await Promise.all(deliveries.map(({ delivery }) => this.receipt(delivery.id)));
      const fresh = deliveries.filter((_, index) => known[index] === undefined);
      // One MULTI: all of them or none. A job whose id is taken meanwhile is left as it is.
      if (fresh.length > 0) await this.queue.addBulk(fresh.map((item) => this.jobOf(item)));
      const seen = new Set<string>();
      return deliveries.map(({ delivery: { id }, notBefore }, index): DeliveryReceipt => {
        const twin = seen.has(id);
        seen.add(id);
        if (known[index] !== undefined) return known[index];
        return twin
          ? { id, status: 'pending', attempts: 0, nextAttemptAt: notBefore }
          : { id, status: 'recorded' };
      });
    });
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { connection, prefix } = this.queue.opts;
    this.worker = new Worker(
      this.queue.name,
      async (job: DeliveryJob, token) => this.run(job, token, handler),
      {
        connection,
        ...(prefix !== undefined && { prefix }),
        concurrency: this.concurrency,
        lockDuration: this.lease,
        stalledInterval: this.lease,
        maxStalledCount: NEVER,
      },
    );
    // BullMQ reconnects by itself; without a listener an error of its connection would end the process.
    this.worker.on('error', () => {});
    await this.worker.waitUntilReady();
    await this.warnOfLosses();
  }

  override async find(ids: readonly string[]): Promise<readonly (KnownDelivery | undefined)[]> {
    return this.ask(async () => Promise.all(ids.map(async (id) => this.receipt(id))));
  }

  override async listDead(): Promise<readonly DeadDelivery[]> {
    return this.ask(async () => {
      const jobs = (await this.queue.getFailed(0, -1)) as DeliveryJob[];
      return jobs.map(deadDelivery).sort((a, b) => a.diedAt - b.diedAt);
    });
  }

  override async redrive(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    return this.ask(async () => {
      const redriven: string[] = [];
      for (const id of new Set(ids)) {
        const job = (await this.queue.getJob(id)) as DeliveryJob | undefined;
        if (job === undefined || !(await job.isFailed())) continue;
        await job.updateData(jobData(deliveryOf(job.data), this.clock.now()));
        await job.retry('failed');
        redriven.push(id);
      }
      return redriven;
    });
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    const { worker } = this;
    if (worker === undefined) return 0;
    let cancel = (): void => {};
    const late = new Promise<void>((resolve) => {
      cancel = this.clock.wakeAt(deadline, resolve);
    });
    await Promise.race([worker.close(), late]);
    cancel();
    const left = this.running;
    // What still runs is given up here; its lease ends, and another process takes it.
    if (left > 0) void worker.close(true).catch(() => {});
    return left;
  }

  private async run(
    job: DeliveryJob,
    token: string | undefined,
    handler: DeliveryHandler,
  ): Promise<number> {
    const delivery = deliveryOf(job.data);
    const lane = deliveryLane(delivery);
    if (!this.lanes.enter(lane)) return this.putOff(job, token, this.clock.now() + LANE_WAIT);
    this.running++;
    let outcome: DeliveryOutcome | undefined;
    try {
      outcome = await handler(delivery, job.data.attempts + 1);
    } catch {
      // The handler's own affair, and it has logged it: here it only means "again".
    } finally {
      this.running--;
      this.lanes.leave(lane);
    }
    return this.settle(job, token, outcome);
  }

  private async warnOfLosses(): Promise<void> {
    // A server that does not let itself be asked is not for that reason a bad one.
    const faults = await durabilityFaults(this.queue).catch(() => []);
    for (const fault of faults) {
      process.emitWarning(`Webhook deliveries can be lost in Redis: ${fault}.`, {
        code: 'WEBHOOK_QUEUE_MAY_LOSE',
      });
    }
  }

  private async settle(
    job: DeliveryJob,
    token: string | undefined,
    outcome: DeliveryOutcome | undefined,
  ): Promise<number> {
    const { attempts, throws } = job.data;
    switch (outcome?.type) {
      case 'delivered':
        return attempts + 1;
      case 'dead':
        throw new UnrecoverableError(failureText(outcome.reason, outcome.attempts));
      case 'retry':
        return this.putOff(job, token, outcome.at, {
          attempts: attempts + 1,
          reason: outcome.reason,
          throws: 0,
        });
      case 'defer':
        return this.putOff(job, token, outcome.at, { throws: 0 });
      default:
        return this.putOff(job, token, this.clock.now() + waitAfterThrow(throws), {
          throws: throws + 1,
        });
    }
  }

  /** Moved first, which a worker that has lost its lease cannot do; a crash in between costs a count, no delivery. */
  private async putOff(
    job: DeliveryJob,
    token: string | undefined,
    at: number,
    change: Partial<DeliveryJob['data']> = {},
  ): Promise<never> {
    await job.moveToDelayed(at, token);
    await job.updateData({ ...job.data, ...change, dueAt: at });
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
        // What BullMQ itself stumbles over, say a server that is full or failing over, must end no delivery.
        attempts: NEVER,
        backoff: { type: 'fixed', delay: FIRST_WAIT_AFTER_THROW },
        delay: Math.max(0, notBefore - this.clock.now()),
        removeOnComplete: this.keep,
        removeOnFail: false,
      },
    };
  }

  private async receipt(id: string): Promise<KnownDelivery | undefined> {
    const job = (await this.queue.getJob(id)) as DeliveryJob | undefined;
    return job === undefined ? undefined : receiptOf(job, await job.getState());
  }

  private async ask<T>(question: () => Promise<T>): Promise<T> {
    try {
      return await question();
    } catch (cause) {
      throw new WebhookStoreError('store_unavailable', 'The delivery queue cannot reach Redis.', {
        cause,
      });
    }
  }

  private refuseWhenStopping(): void {
    if (this.stopping) {
      throw new WebhookDeliveryError('shutting_down', 'The delivery queue is stopped.');
    }
  }
}

function waitAfterThrow(throws: number): number {
  return Math.min(FIRST_WAIT_AFTER_THROW * 2 ** Math.min(throws, 16), LONGEST_WAIT_AFTER_THROW);
}
