import { waitUntil } from '../clock/webhook-clock.js';
import { unprinted } from '../options/unprinted.js';
import type { DeliveryAttempt, DeliveryLimits, DeliveryRecord } from '../queue/webhook-delivery.js';
import { RememberedLimits } from '../queue/lane-limits.js';
import {
  type DeliveryCountFilter,
  type DeliveryCounts,
  type DeliveryFilter,
  type DeliveryPageRequest,
  type ListedDelivery,
  WebhookQueue,
  type DeliveryHandler,
  type EnqueuedDelivery,
  type EnqueueOptions,
  queueStopped,
} from '../queue/webhook-queue.js';
import type { RunStatement } from './database.js';
import { isOutage } from './database-failure.js';
import { DeliveryConsumer } from './delivery-consumer.js';
import { DeliveryLimitTable } from './delivery-limit-table.js';
import { DeliveryLists } from './delivery-lists.js';
import { laneColumn, storableText } from './delivery-row.js';
import { DeliveryTable, haveTurns } from './delivery-table.js';
import { KeyTurns } from './key-turns.js';
import { GroupCommit, type GroupOptions } from './group-commit.js';
import { QueueConnection, type QueueHost } from './queue-connection.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';
import { servesAnother } from '../queue/queue-options.js';
import { QueueUpkeep } from './queue-upkeep.js';

/** Milliseconds to close the database, even if the deadline of the shutdown has passed. */
const TIME_TO_CLOSE = 2_000;
/** `enqueue` fails after so many timeouts: it may wait for other calls, for a connection and for its statement. */
const TIMEOUTS_PER_CALL = 3;

/** Milliseconds that a call in a transaction waits until limits are set: the transaction may have the last connection of the pool. */
const TIME_TO_LIMIT = 200;

/** For the message about a transaction of another database. */
const OWN_DATABASE = {
  use: 'this queue stores its deliveries',
  instead: 'publish without tx after the commit',
};

/** Stores deliveries in PostgreSQL, in tables of this package: the base of `PostgresQueue` and `PgliteQueue`. */
export abstract class DatabaseQueue extends WebhookQueue {
  override readonly durable = true;
  override readonly shared: boolean;
  override readonly transactional = true;

  private readonly connection: QueueConnection;
  private readonly table: DeliveryTable;
  private readonly keys: KeyTurns;
  private readonly upkeep: QueueUpkeep;
  private readonly lists: DeliveryLists;
  private readonly groups: GroupCommit;
  private consumer: DeliveryConsumer | undefined;
  private isConsumed = false;
  private stopping = false;
  private readonly limits = new RememberedLimits();
  private readonly limitTable: DeliveryLimitTable;

  /** @hidden */
  protected constructor(
    host: QueueHost,
    private readonly options: ResolvedDatabaseQueueOptions,
  ) {
    super();
    // The connection string of its host holds a password.
    unprinted(this, `[${this.constructor.name} "${options.name}" in ${host.server}]`);
    this.shared = host.shared;
    this.connection = new QueueConnection(host, options);
    this.table = new DeliveryTable(this.connection);
    this.keys = new KeyTurns(this.connection);
    this.limitTable = new DeliveryLimitTable(this.connection);
    this.upkeep = new QueueUpkeep(this.connection);
    this.lists = new DeliveryLists(this.connection);
    this.groups = new GroupCommit({
      record: async (deliveries, how) => this.recordAndWake(deliveries, how),
      isOutage,
      clock: options.clock,
    });
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { tx, check }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    this.requireRunning();
    if (tx !== undefined) return this.enqueueIn(tx, deliveries, check);
    const commit = async (): Promise<readonly (DeliveryRecord | undefined)[]> =>
      this.groups.commitInGroup(deliveries, check);
    return this.connection.reporting(async () => this.connection.inTime(commit, TIMEOUTS_PER_CALL));
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    if (this.isConsumed) throw servesAnother(this.stopping);
    this.isConsumed = true;
    try {
      await this.open();
    } catch (error) {
      this.isConsumed = false;
      throw error;
    }
    // An application may shut down while it starts.
    if (this.stopping) return;
    const { connection, table, keys, limitTable: limits, upkeep } = this;
    this.consumer = new DeliveryConsumer({ connection, table, keys, limits, upkeep, handler });
  }

  override async find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]> {
    return ids.length === 0 ? [] : this.recordsOf(ids);
  }

  private async recordsOf(
    ids: readonly string[],
    run?: RunStatement,
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const known = await this.table.find(ids, run);
    return ids.map((id) => known.get(id));
  }

  override async list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    return this.lists.list(filter, page);
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    return this.lists.attempts(id);
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    return this.lists.counts(filter);
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const rows = await this.table.redeliver(ids, this.needsOthers);
    this.consumer?.loop.wake();
    const changed = new Set(rows.map(({ id }) => id));
    return [...new Set(ids)].filter((id) => changed.has(id));
  }

  override async skip(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const rows = await this.keys.skip(ids);
    await this.releaseNext(rows.map(({ seq }) => seq as string));
    const changed = new Set(rows.map(({ id }) => id));
    return [...new Set(ids)].filter((id) => changed.has(id));
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    return this.releaseAfter(await this.upkeep.prune(before, tenant));
  }

  override async erase(filter: DeliveryFilter): Promise<number> {
    return this.releaseAfter(await this.upkeep.erase(filter));
  }

  override async limitLane(lane: string, limits: DeliveryLimits): Promise<void> {
    await this.replaceLimits(new Map([[storableText(lane), limits]]));
  }

  override async flush(): Promise<void> {
    await this.consumer?.drain();
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    const { clock } = this.options;
    const idle = Promise.all([this.consumer?.loop.stop(), this.groups.settled()]);
    await waitUntil(clock, deadline, idle);
    const left = this.consumer?.loop.running.length ?? 0;
    // An unavailable server must not delay the shutdown; its connections end with the process.
    const closed = this.connection.close(this.consumer?.end()).catch(() => {});
    await waitUntil(clock, Math.max(deadline, clock.now() + TIME_TO_CLOSE), closed);
    return left;
  }

  /** @hidden */
  protected async open(): Promise<void> {
    await this.connection.open();
  }

  /** Records deliveries in a transaction of the caller. */
  private async enqueueIn(
    tx: unknown,
    deliveries: readonly EnqueuedDelivery[],
    check: EnqueueOptions['check'],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const record = async (run: RunStatement): Promise<readonly (DeliveryRecord | undefined)[]> => {
      const ids = deliveries.map(({ delivery }) => delivery.id);
      // Ahead too: the caller may commit after an error.
      check?.(await this.recordsOf(ids, run));
      // Not in the transaction, whose lock on them would stop other calls until it ends.
      const limits = this.setLimits(deliveries).catch(() => {});
      const how = { notifies: this.options.notify, waits: true, isJoined: true };
      const { records } = await this.table.record(deliveries, how, run);
      const { clock } = this.options;
      if (this.shared) await waitUntil(clock, clock.now() + TIME_TO_LIMIT, limits);
      return records;
    };
    return this.connection.joining(tx, record, OWN_DATABASE);
  }

  /** Records deliveries in a commit of their own, and starts to attempt them. */
  private async recordAndWake(
    deliveries: readonly EnqueuedDelivery[],
    { waits, check }: GroupOptions,
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const how = { notifies: this.needsOthers, waits };
    await this.setLimits(deliveries);
    const record = async (run?: RunStatement): ReturnType<DeliveryTable['record']> => {
      const recorded = await this.table.record(deliveries, how, run);
      check?.(recorded.records);
      return recorded;
    };
    const isTransaction = check !== undefined || (waits && haveTurns(deliveries));
    const { records, held, limitedLanes } = await (isTransaction
      ? this.connection.transaction(record)
      : record());
    // The delivery that they wait for may have ended before their commit.
    if (held.length > 0) await this.releaseNext(held).catch(() => {});
    this.consumer?.loop.wake(limitedLanes);
    return records;
  }

  /**
   * Sets the limits that come with deliveries. The database compares them with what it knows, and this process remembers what it
   * has set.
   */
  private async setLimits(deliveries: readonly EnqueuedDelivery[]): Promise<void> {
    const wanted = new Map<string, DeliveryLimits>();
    for (const { delivery, limits } of deliveries) {
      if (limits !== undefined) wanted.set(laneColumn(delivery), limits);
    }
    const now = this.options.clock.now();
    for (const [lane, limits] of wanted) {
      if (this.limits.has(lane, limits, now)) wanted.delete(lane);
    }
    if (wanted.size > 0) await this.replaceLimits(wanted);
  }

  private async replaceLimits(wanted: ReadonlyMap<string, DeliveryLimits>): Promise<void> {
    const now = this.options.clock.now();
    const changed = await this.limitTable.set(wanted);
    this.consumer?.loop.wake(changed);
    for (const [lane, limits] of wanted) this.limits.add(lane, limits, now);
  }

  /** Releases the next deliveries of the keys of these. If it fails, the consumer makes up for it. */
  private async releaseNext(seqs: readonly string[]): Promise<void> {
    if (seqs.length > 0 && (await this.keys.releaseNext(seqs))) this.consumer?.loop.wake();
  }

  /** Releases what waited for deleted deliveries. If it fails, the consumer makes up for it. @returns their number */
  private async releaseAfter(deleted: number): Promise<number> {
    const releases = deleted > 0 && (await this.keys.releaseAll().catch(() => false));
    if (releases) this.consumer?.loop.wake();
    return deleted;
  }

  /** Whether a new delivery may have to wait here while another process could attempt it. */
  private get needsOthers(): boolean {
    return this.options.notify && this.shared && this.consumer?.loop.hasFreeSlot !== true;
  }

  private requireRunning(): void {
    if (this.stopping) throw queueStopped();
  }
}
