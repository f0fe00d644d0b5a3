import type { Db, PgBoss } from 'pg-boss';
import { inTime, waitUntil } from '../clock/webhook-clock.js';
import { WebhookDeliveryError, WebhookStoreError } from '../errors/webhook.error.js';
import {
  WebhookQueue,
  type DeadDelivery,
  type DeliveryHandler,
  type DeliveryReceipt,
  type EnqueuedDelivery,
  type EnqueueOptions,
  type KnownDelivery,
} from '../queue/webhook-queue.js';
import { wasAttempt } from '../queue/delivery-progress.js';
import { deliveryOfStored } from '../queue/stored-delivery.js';
import type { BossHost } from './boss-host.js';
import { ClaimLoop } from './claim-loop.js';
import { databaseFailure } from './database-failure.js';
import { outcomeOf, OutcomeWriter } from './outcome-writer.js';
import type { ResolvedJobQueueOptions } from './job-queue-options.js';
import { deadDelivery, jobId, jobOf, jobQueueOptions, receiptOf } from './job-record.js';
import { JobMaintenance } from './job-maintenance.js';
import { JobStatements, type ClaimedJob } from './job-statements.js';

/** Milliseconds that `enqueue` in a transaction waits until the queue is open. */
const TIME_TO_OPEN = 5_000;
/** Milliseconds to close the database, even if the deadline of the shutdown has passed. */
const TIME_TO_CLOSE = 2_000;

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
  private opening: Promise<OpenQueue> | undefined;
  private opened: OpenQueue | undefined;
  private loop: ClaimLoop | undefined;
  private readonly maintenance: JobMaintenance;
  private cancelHeartbeat = (): void => {};
  private stopping = false;

  /** @hidden */
  protected constructor(
    private readonly host: BossHost,
    private readonly options: ResolvedJobQueueOptions,
  ) {
    super();
    this.shared = host.shared;
    this.statements = new JobStatements(host.schema, options.name);
    const { clock, lease } = options;
    this.outcomes = new OutcomeWriter(
      async (batch) => this.statements.writeOutcomes((await this.open()).db, batch),
      clock,
      lease,
    );
    this.maintenance = new JobMaintenance({
      releaseExpired: async () => this.statements.releaseExpired((await this.open()).db),
      removeDelivered: async (limit) =>
        this.statements.removeDelivered((await this.open()).db, limit),
      clock,
    });
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { tx }: EnqueueOptions = {},
  ): Promise<readonly DeliveryReceipt[]> {
    this.requireRunning();
    const joined = tx === undefined ? undefined : this.host.join(tx);
    if (joined !== undefined) await this.openInTime();
    const receipts = await this.withQueue(async ({ boss, db }) =>
      this.record(boss, joined ?? db, deliveries),
    );
    // Deliveries recorded in a transaction are visible after its commit, to the next poll.
    if (joined === undefined) this.loop?.wake();
    return receipts;
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { clock } = this.options;
    await this.withQueue(async () => {});
    // An application may shut down while it starts.
    if (this.stopping) return;
    this.loop = new ClaimLoop({
      ...this.options,
      claim: async (request) => this.statements.claim((await this.open()).db, request),
      nextDue: async (after, until) =>
        this.statements.nextDue((await this.open()).db, after, until),
      run: async (job) => this.run(job, handler),
      release: async ({ id, claim }) => this.outcomes.write({ id, claim, state: 'retry' }),
      onOutage: (error) => warnOfOutage(error, this.host.server),
      clock,
    });
    this.renewLeases();
    this.maintenance.start();
    this.loop.wake();
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

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const { clock, keepDelivered } = this.options;
    const keep = Math.ceil(keepDelivered / 1_000);
    const redelivered = await this.withQueue(async ({ db }) =>
      this.statements.redeliver(db, ids, clock.now(), keep),
    );
    this.loop?.wake();
    return [...new Set(ids)].filter((id) => redelivered.has(jobId(id)));
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    const { clock } = this.options;
    await waitUntil(clock, deadline, this.loop?.stop());
    this.cancelHeartbeat();
    this.maintenance.stop();
    this.outcomes.close();
    const left = this.loop?.running.length ?? 0;
    // An unavailable server must not delay the shutdown; its connections end with the process.
    const closed = this.opening?.then(async () => this.host.close()).catch(() => {});
    await waitUntil(clock, Math.max(deadline, clock.now() + TIME_TO_CLOSE), closed);
    return left;
  }

  /** Opens the queue once. A connection that is lost later is replaced by the driver. */
  protected async open(): Promise<OpenQueue> {
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
    // Without this index the queue works, but slowly behind a large backlog. Another process may be creating it.
    await this.statements.createLaneIndex(boss.getDb(), queue!.table).catch(() => {});
  }

  private async record(
    boss: PgBoss,
    db: Db,
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly DeliveryReceipt[]> {
    const fresh = new Map(deliveries.toReversed().map((item) => [item.delivery.id, item]));
    const inOrder = deliveries.filter((item) => fresh.get(item.delivery.id) === item);
    const inserted = new Set(
      await boss.insert(this.options.name, inOrder.map(jobOf), { db, returnId: true }),
    );
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

  private async withQueue<T>(work: (queue: OpenQueue) => Promise<T>): Promise<T> {
    try {
      return await work(await this.open());
    } catch (error) {
      throw databaseFailure('The delivery queue', error, this.host.server);
    }
  }

  private requireRunning(): void {
    if (this.stopping) {
      throw new WebhookDeliveryError(
        'shutting_down',
        'The delivery queue is stopped: the application is shutting down.',
      );
    }
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

function warnOfOutage(error: unknown, server: string): void {
  const { message } = databaseFailure('The delivery queue', error, server);
  process.emitWarning(`${message} Deliveries wait; the queue tries again every few seconds.`, {
    code: 'WEBHOOK_QUEUE_UNAVAILABLE',
  });
}
