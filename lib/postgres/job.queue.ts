import type { Db, PgBoss } from 'pg-boss';
import { inTime, waitUntil } from '../clock/webhook-clock.js';
import { WebhookDeliveryError, WebhookStoreError } from '../errors/webhook.error.js';
import { unprinted } from '../options/unprinted.js';
import {
  WebhookQueue,
  type DeadDelivery,
  type DeliveryHandler,
  type DeliveryReceipt,
  type EnqueuedDelivery,
  type EnqueueOptions,
  type KnownDelivery,
  type QueueCounts,
} from '../queue/webhook-queue.js';
import { wasAttempt } from '../queue/delivery-progress.js';
import { deliveryOfStored } from '../queue/stored-delivery.js';
import type { BossHost } from './boss-host.js';
import { ClaimLoop } from './claim-loop.js';
import { databaseFailure, isOutage } from './database-failure.js';
import { GroupCommit } from './group-commit.js';
import { outcomeOf, OutcomeWriter } from './outcome-writer.js';
import type { ResolvedJobQueueOptions } from './job-queue-options.js';
import { deadDelivery, jobId, jobOf, jobQueueOptions, receiptOf } from './job-record.js';
import { JobMaintenance } from './job-maintenance.js';
import { JobNotifications, notificationChannel } from './job-notifications.js';
import {
  JobStatements,
  type ClaimedJob,
  type ClaimRequest,
  type ClaimResult,
} from './job-statements.js';

/** Milliseconds that `enqueue` in a transaction waits until the queue is open. */
const TIME_TO_OPEN = 5_000;
/** Milliseconds to close the database, even if the deadline of the shutdown has passed. */
const TIME_TO_CLOSE = 2_000;

/** A statement may take this part of a lease, so that an outcome can be written again in time over another connection. */
const STATEMENTS_PER_LEASE = 3;

interface OpenQueue {
  readonly boss: PgBoss;
  readonly db: Db;
}

/**
 * Stores deliveries as jobs of pg-boss: the base of `PgBossQueue` and `PgliteQueue`.
 *
 * pg-boss owns the tables and their migrations, and records jobs. Claims, outcomes, leases and retention are
 * {@link JobStatements} over its job table.
 */
export abstract class JobQueue extends WebhookQueue {
  override readonly durable = true;
  override readonly shared: boolean;
  override readonly transactional = true;

  private readonly statements: JobStatements;
  private readonly outcomes: OutcomeWriter;
  private readonly groups: GroupCommit;
  private opening: Promise<OpenQueue> | undefined;
  private opened: OpenQueue | undefined;
  private loop: ClaimLoop | undefined;
  private notifications: JobNotifications | undefined;
  private readonly maintenance: JobMaintenance;
  private cancelHeartbeat = (): void => {};
  private stopping = false;
  /** Set when `stop` no longer waits for calls of `enqueue`. */
  private closed = false;

  /** @hidden */
  protected constructor(
    private readonly host: BossHost,
    private readonly options: ResolvedJobQueueOptions,
  ) {
    super();
    // The connection string of its host holds a password.
    unprinted(this, `[${this.constructor.name} "${options.name}" in ${host.server}]`);
    this.shared = host.shared;
    this.statements = new JobStatements(host.schema, options.name);
    const { clock, lease } = options;
    this.outcomes = new OutcomeWriter(
      async (batch) => this.inBackground(async (db) => this.statements.writeOutcomes(db, batch)),
      clock,
      lease,
    );
    this.groups = new GroupCommit({
      recordGroup: async (deliveries) => this.commit(deliveries, { waits: false }),
      recordCall: async (deliveries) => this.commit(deliveries, { waits: true }),
      isOutage,
      clock,
    });
    this.maintenance = new JobMaintenance({
      releaseExpired: async () =>
        this.inBackground(async (db) => this.statements.releaseExpired(db)),
      removeDelivered: async (limit) =>
        this.inBackground(async (db) => this.statements.removeDelivered(db, limit)),
      clock,
    });
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { tx }: EnqueueOptions = {},
  ): Promise<readonly DeliveryReceipt[]> {
    this.requireRunning();
    if (tx === undefined) return this.reporting(async () => this.groups.enqueue(deliveries));
    const joined = this.host.join(tx);
    await this.openInTime();
    const notifies = this.options.notify;
    return this.withQueue(async ({ boss }) =>
      this.record(boss, joined, deliveries, { notifies, waits: true }),
    );
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { clock, name, notify } = this.options;
    const { db } = await this.withQueue(async (queue) => queue);
    // An application may shut down while it starts.
    if (this.stopping) return;
    this.loop = new ClaimLoop({
      ...this.options,
      claim: async (request) => this.claim(request),
      findDueLanes: async (lanes, now) =>
        this.inBackground(async (db) => this.statements.findDueLanes(db, lanes, now)),
      run: async (job) => this.run(job, handler),
      release: async (job) => this.release(job),
      onOutage: (error) => warnOfOutage(error, this.host.server),
      clock,
    });
    this.renewLeases();
    this.maintenance.start();
    this.loop.wake();
    if (!notify) return;
    const channel = notificationChannel(this.host.schema);
    const onNotification = (): void => this.loop?.wake();
    this.notifications = new JobNotifications({ db, channel, name, onNotification, clock });
    this.notifications.start();
  }

  override async find(ids: readonly string[]): Promise<readonly (KnownDelivery | undefined)[]> {
    return this.withQueue(async ({ db }) => {
      const jobs = await this.statements.find(db, ids);
      return ids.map((id) => {
        const job = jobs.get(jobId(id));
        return job === undefined ? undefined : receiptOf(id, job);
      });
    });
  }

  override async listDead(): Promise<readonly DeadDelivery[]> {
    return this.withQueue(async ({ db }) =>
      (await this.statements.listFailed(db)).map(deadDelivery),
    );
  }

  override async counts(): Promise<QueueCounts> {
    return this.withQueue(async ({ db }) => this.statements.counts(db));
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const { clock, keepDelivered } = this.options;
    const keep = Math.ceil(keepDelivered / 1_000);
    const redelivered = await this.withQueue(async ({ db }) =>
      this.statements.redeliver(db, ids, clock.now(), keep, this.needsOthers),
    );
    this.loop?.wake();
    return [...new Set(ids)].filter((id) => redelivered.has(jobId(id)));
  }

  override async flush(): Promise<void> {
    await this.loop?.drain();
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    const { clock } = this.options;
    await waitUntil(clock, deadline, Promise.all([this.loop?.stop(), this.groups.settled()]));
    this.closed = true;
    this.cancelHeartbeat();
    this.maintenance.stop();
    this.outcomes.close();
    const left = this.loop?.running.length ?? 0;
    // An unavailable server must not delay the shutdown; its connections end with the process.
    const closed = this.opening?.then(async () => this.close()).catch(() => {});
    await waitUntil(clock, Math.max(deadline, clock.now() + TIME_TO_CLOSE), closed);
    return left;
  }

  private async close(): Promise<void> {
    await Promise.all([this.notifications?.stop(), this.host.close()]);
  }

  /** Opens the queue once. A connection that is lost later is replaced by the driver. */
  protected async open(): Promise<OpenQueue> {
    if (this.closed) throw this.shuttingDown();
    this.opening ??= this.openJobs().catch((error: unknown) => {
      this.opening = undefined;
      throw error;
    });
    return this.opening;
  }

  /** Opening takes a connection. If transactions hold every connection of the pool, they would wait for it forever. */
  private async openInTime(): Promise<void> {
    if (this.opened !== undefined) return;
    const makeError = (): WebhookStoreError =>
      new WebhookStoreError(
        'store_unavailable',
        `The delivery queue is still being opened in ${this.host.server}: its pool may have no free connection. ` +
          'Use the queue once before the first transaction, as the start of an application does, or pass it a pool of its own.',
      );
    await inTime(
      this.options.clock,
      TIME_TO_OPEN,
      async () => this.withQueue(async () => {}),
      makeError,
    );
  }

  private async openJobs(): Promise<OpenQueue> {
    const boss = await this.host.open();
    try {
      await this.prepare(boss);
    } catch (error) {
      // The next call opens it again; without this, the pool, timers and lock of this attempt would leak.
      await this.host.close().catch(() => {});
      throw error;
    }
    this.opened = { boss, db: boss.getDb() };
    return this.opened;
  }

  private async prepare(boss: PgBoss): Promise<void> {
    const { lease, keepDelivered, name } = this.options;
    const settings = jobQueueOptions(lease, keepDelivered);
    await boss.createQueue(name, settings);
    // An earlier start may have created it with other settings.
    await boss.updateQueue(name, settings);
    const queue = await boss.getQueue(name);
    // Makes pg-boss cache the queue, so that an insert in a transaction needs no second connection.
    await boss.insert(name, []);
    if (!this.host.migrates) return;
    // Without this index the queue works, but slowly behind a large backlog.
    await this.statements
      .createLaneIndex(boss.getDb(), queue!.table)
      .catch((error: unknown) => warnOfMissingIndex(error, this.host.server));
  }

  /** Records deliveries in a commit of their own, and starts to attempt them. */
  private async commit(
    deliveries: readonly EnqueuedDelivery[],
    { waits }: { readonly waits: boolean },
  ): Promise<readonly DeliveryReceipt[]> {
    if (this.closed) throw this.shuttingDown();
    const { boss, db } = await this.open();
    const change = { notifies: this.needsOthers, waits };
    const receipts = await this.record(boss, db, deliveries, change);
    this.loop?.wake();
    return receipts;
  }

  /** Whether a new delivery may have to wait here while another process could attempt it. */
  private get needsOthers(): boolean {
    return this.options.notify && this.shared && this.loop?.hasFreeSlot !== true;
  }

  private async record(
    boss: PgBoss,
    db: Db,
    deliveries: readonly EnqueuedDelivery[],
    how: Parameters<JobStatements['wrap']>[1],
  ): Promise<readonly DeliveryReceipt[]> {
    const fresh = new Map(deliveries.toReversed().map((item) => [item.delivery.id, item]));
    const inOrder = deliveries.filter((item) => fresh.get(item.delivery.id) === item);
    const insertion = { db: this.statements.wrap(db, how), returnId: true };
    const inserted = new Set(await boss.insert(this.options.name, inOrder.map(jobOf), insertion));
    const known =
      inserted.size === deliveries.length
        ? undefined
        : await this.statements.find(
            db,
            deliveries.map(({ delivery }) => delivery.id),
          );
    return deliveries.map((item): DeliveryReceipt => {
      const { id } = item.delivery;
      if (fresh.get(id) === item && inserted.has(jobId(id))) return { id, status: 'recorded' };
      const job = known?.get(jobId(id));
      // A transaction with an older snapshot cannot see the job that its insert conflicted with.
      const pending = { status: 'pending', attempts: 0, nextAttemptAt: item.notBefore } as const;
      return job === undefined ? { id, ...pending } : receiptOf(id, job);
    });
  }

  private async claim(request: ClaimRequest): Promise<ClaimResult> {
    let claimed: Promise<ClaimResult> | undefined;
    try {
      return await this.inBackground(async (db) => (claimed = this.statements.claim(db, request)));
    } catch (error) {
      // Jobs of a claim that was answered too late.
      claimed?.then(({ jobs }) => jobs.forEach((job) => void this.release(job))).catch(() => {});
      throw error;
    }
  }

  /** Returns a claimed job to the queue. */
  private async release({ id, claim }: ClaimedJob): Promise<void> {
    return this.outcomes.write({ id, claim, state: 'retry' });
  }

  /** Runs a statement of the background work, which must not wait for a connection that was lost unnoticed. */
  private async inBackground<T>(work: (db: Db) => Promise<T>): Promise<T> {
    const { clock, lease } = this.options;
    const run = async (): Promise<T> => work((await this.open()).db);
    // An embedded database has no connection; its statements wait for transactions of the application.
    if (!this.shared) return run();
    const makeError = (): Error => new Error('timeout expired');
    return inTime(clock, lease / STATEMENTS_PER_LEASE, run, makeError);
  }

  private async run(job: ClaimedJob, handler: DeliveryHandler): Promise<boolean> {
    const { data } = job;
    const outcome = await attempt(async () =>
      handler(deliveryOfStored(data.delivery), data.attempts + 1),
    );
    await this.outcomes.write(outcomeOf(job, outcome, this.options.clock.now()));
    return wasAttempt(outcome);
  }

  /** Renews the leases of running jobs, three times per lease. */
  private renewLeases(): void {
    const { clock, lease, name } = this.options;
    this.cancelHeartbeat = clock.wakeAt(clock.now() + lease / 3, () => {
      const running = this.loop?.running ?? [];
      const held = running.map(({ id, claim }) => ({ id, retryCount: claim }));
      this.renewLeases();
      // If it fails, the next renewal makes up for it.
      if (held.length > 0) this.opened?.boss.touch(name, held).catch(() => {});
    });
  }

  /**
   * Opens the queue if it is not open yet, and uses it.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`; {@link WebhookDeliveryError} `shutting_down`
   */
  protected async withQueue<T>(work: (queue: OpenQueue) => Promise<T>): Promise<T> {
    return this.reporting(async () => work(await this.open()));
  }

  private async reporting<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof WebhookDeliveryError) throw error;
      throw databaseFailure('The delivery queue', error, this.host.server);
    }
  }

  private requireRunning(): void {
    if (this.stopping) throw this.shuttingDown();
  }

  private shuttingDown(): WebhookDeliveryError {
    return new WebhookDeliveryError(
      'shutting_down',
      'The delivery queue is stopped, because the application is shutting down.',
    );
  }
}

async function attempt<T>(run: () => Promise<T>): Promise<T | undefined> {
  try {
    return await run();
  } catch {
    // The handler has logged its error; the queue retries the job.
    return undefined;
  }
}

function warnOfMissingIndex(error: unknown, server: string): void {
  const { message } = databaseFailure('The delivery queue', error, server);
  process.emitWarning(
    `The delivery queue could not create its index, without which a large backlog slows it down; create it with: npx nestjs-webhook-token migrate. ${message}`,
    { code: 'WEBHOOK_QUEUE_INDEX_MISSING' },
  );
}

function warnOfOutage(error: unknown, server: string): void {
  const { message } = databaseFailure('The delivery queue', error, server);
  process.emitWarning(`${message} Deliveries wait; the queue tries again every few seconds.`, {
    code: 'WEBHOOK_QUEUE_UNAVAILABLE',
  });
}
