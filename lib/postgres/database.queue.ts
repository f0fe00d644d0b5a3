import { waitUntil } from '../clock/webhook-clock.js';
import { unprinted } from '../options/unprinted.js';
import { pendingRecord } from '../queue/delivery-list.js';
import {
  takesTurn,
  type DeliveryAttempt,
  type DeliveryLimits,
  type DeliveryRecord,
} from '../queue/webhook-delivery.js';
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
import type { Row, RunStatement } from './database.js';
import { isOutage } from './database-failure.js';
import { requireSameDatabase } from './database-identity.js';
import { DeliveryConsumer } from './delivery-consumer.js';
import { DeliveryLimitTable } from './delivery-limit-table.js';
import {
  attemptOf,
  countsOf,
  deliveryRows,
  laneColumn,
  listedDelivery,
  recordOf,
  storableText,
} from './delivery-row.js';
import { DeliveryStatements, type Query } from './delivery-statements.js';
import { releaseNext } from './key-turns.js';
import { ListStatements } from './list-statements.js';
import { GroupCommit } from './group-commit.js';
import { QueueConnection, type QueueHost } from './queue-connection.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';
import { runInCall, runInTransaction } from './transactions/join-transaction.js';
import { servesAnother } from '../queue/queue-options.js';
import { DELETED_AT_ONCE, UpkeepStatements } from './upkeep-statements.js';

/** Milliseconds to close the database, even if the deadline of the shutdown has passed. */
const TIME_TO_CLOSE = 2_000;
/** `enqueue` fails after so many timeouts: it may wait for other calls, for a connection and for its statement. */
const TIMEOUTS_PER_CALL = 3;

/** `lock_timeout` of a commit that several calls share: if one of them has to wait, each gets a commit of its own. */
const SHORT_WAIT = '1s';

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
  private readonly statements: DeliveryStatements;
  private readonly upkeep: UpkeepStatements;
  private readonly lists: ListStatements;
  private readonly groups: GroupCommit;
  private readonly channel: string;
  private consumer: DeliveryConsumer | undefined;
  private isConsumed = false;
  private stopping = false;
  private readonly limits = new RememberedLimits();
  private readonly limitTable: DeliveryLimitTable;
  /** Runs a statement outside any transaction. */
  private readonly runStatement: RunStatement = async (...query) => this.connection.query(...query);

  /** @hidden */
  protected constructor(
    private readonly host: QueueHost,
    private readonly options: ResolvedDatabaseQueueOptions,
  ) {
    super();
    // The connection string of its host holds a password.
    unprinted(this, `[${this.constructor.name} "${options.name}" in ${host.server}]`);
    this.shared = host.shared;
    this.channel = `${host.schema}_deliveries`;
    this.connection = new QueueConnection(host, options);
    this.statements = new DeliveryStatements(host.schema);
    this.limitTable = new DeliveryLimitTable(this.connection, this.statements.limits, options);
    this.upkeep = new UpkeepStatements(host.schema);
    this.lists = new ListStatements(host.schema);
    this.groups = new GroupCommit({
      record: async (deliveries, how) => this.recordAndWake(deliveries, how),
      isOutage,
      clock: options.clock,
    });
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { tx }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    this.requireRunning();
    if (tx !== undefined) return this.enqueueIn(tx, deliveries);
    return this.connection.reporting(async () =>
      this.connection.inTime(TIMEOUTS_PER_CALL, async () => this.groups.commitInGroup(deliveries)),
    );
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
    const { connection, statements, limitTable: limits, upkeep, options, channel, host } = this;
    const { server } = host;
    this.consumer = new DeliveryConsumer({
      connection,
      statements,
      limits,
      upkeep,
      options,
      handler,
      server,
      channel,
    });
  }

  override async find(
    ids: readonly string[],
    { tx }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    if (ids.length === 0) return [];
    const known = await (tx === undefined
      ? this.connection.reporting(async () => this.knownDeliveries(this.runStatement, ids))
      : this.inTransaction(tx, async (run) => this.knownDeliveries(run, ids)));
    return ids.map((id) => known.get(id));
  }

  override async list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    const rows = await this.connection.search(this.lists.list(this.options.name, filter, page));
    return rows.map(listedDelivery);
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    const rows = await this.connection.search([this.lists.attempts, [this.options.name, id]]);
    return rows.map(attemptOf);
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    const rows = await this.connection.search(this.lists.counts(this.options.name, filter));
    return rows.map(countsOf);
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const channel = this.needsOthers ? this.channel : null;
    const values = [this.options.name, idList(ids), this.connection.now, channel];
    const rows = await this.connection.reporting(async () =>
      this.connection.query(this.statements.redeliver, values),
    );
    this.consumer?.wake();
    const changed = new Set(rows.map(({ id }) => id));
    return [...new Set(ids)].filter((id) => changed.has(id));
  }

  override async skip(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const rows = await this.connection.reporting(async () => {
      const skipped = await this.connection.query(this.statements.keys.skip, [
        this.options.name,
        idList(ids),
      ]);
      await this.releaseNext(skipped.map(({ seq }) => seq as string));
      return skipped;
    });
    const changed = new Set(rows.map(({ id }) => id));
    return [...new Set(ids)].filter((id) => changed.has(id));
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    return this.deleteAll(this.upkeep.prune(this.options.name, before, tenant), DELETED_AT_ONCE);
  }

  override async erase(filter: DeliveryFilter): Promise<number> {
    // Until nothing is left: rows that are being changed are skipped.
    return this.deleteAll(this.upkeep.erase(this.options.name, filter, this.connection.now), 1);
  }

  /** @param least - deleted rows of a batch after which another one follows */
  private async deleteAll(query: Query, least: number): Promise<number> {
    let deleted = 0;
    for (;;) {
      const [row] = await this.connection.reporting(async () =>
        this.connection.queryInIndexOrder(...query),
      );
      const gone = Number(row!['gone']);
      deleted += gone;
      if (gone < least) break;
    }
    await this.connection.search([this.upkeep.deleteEmptyCounts, [this.options.name]]);
    return deleted;
  }

  override async limitLane(lane: string, limits: DeliveryLimits): Promise<void> {
    await this.connection.reporting(async () =>
      this.replaceLimits(new Map([[storableText(lane), limits]])),
    );
  }

  override async flush(): Promise<void> {
    await this.consumer?.drain();
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    const { clock } = this.options;
    const idle = Promise.all([this.consumer?.stop(), this.groups.settled()]);
    await waitUntil(clock, deadline, idle);
    const left = this.consumer?.running ?? 0;
    // An unavailable server must not delay the shutdown; its connections end with the process.
    const closed = this.connection.close(this.consumer?.end()).catch(() => {});
    await waitUntil(clock, Math.max(deadline, clock.now() + TIME_TO_CLOSE), closed);
    return left;
  }

  /** @hidden */
  protected async open(): Promise<void> {
    await this.connection.reporting(async () => this.connection.open());
  }

  /** Records deliveries in a transaction of the caller. */
  private async enqueueIn(
    tx: unknown,
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    return this.inTransaction(tx, async (run) => {
      // Not in the transaction, whose lock on them would stop other calls until it ends.
      const limits = this.setLimits(deliveries).catch(() => {});
      const how = { notifies: this.options.notify, waits: true, isJoined: true };
      const { records } = await this.insertDeliveries(run, deliveries, how);
      const { clock } = this.options;
      if (this.shared) await waitUntil(clock, clock.now() + TIME_TO_LIMIT, limits);
      return records;
    });
  }

  /** Runs statements in a transaction of the caller, with a deadline for all of them. */
  private async inTransaction<T>(tx: unknown, work: (run: RunStatement) => Promise<T>): Promise<T> {
    const joined = this.host.join(tx);
    const { own } = await this.connection.openInTransaction();
    return this.connection.reporting(async () =>
      runInCall(
        () => joined,
        async (call) => this.connection.inTime(1, call),
        async (run) => {
          await requireSameDatabase(tx as object, run, own, OWN_DATABASE);
          return work(run);
        },
      ),
    );
  }

  /** Records deliveries in a commit of their own, and starts to attempt them. */
  private async recordAndWake(
    deliveries: readonly EnqueuedDelivery[],
    { waits }: { readonly waits: boolean },
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const how = { notifies: this.needsOthers, waits };
    await this.setLimits(deliveries);
    const { records, held, limitedLanes } = await (waits && haveTurns(deliveries)
      ? this.connection.transaction(async (run) => this.insertDeliveries(run, deliveries, how))
      : this.insertDeliveries(this.runStatement, deliveries, how));
    // The delivery that they wait for may have ended before their commit.
    if (held.length > 0) await this.releaseNext(held).catch(() => {});
    this.consumer?.wake(limitedLanes);
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
    this.consumer?.wake(changed);
    for (const [lane, limits] of wanted) this.limits.add(lane, limits, now);
  }

  /** Releases the next deliveries of the keys of these. If it fails, the consumer makes up for it. */
  private async releaseNext(seqs: readonly string[]): Promise<void> {
    if (seqs.length === 0) return;
    const { connection, statements, options } = this;
    if (await releaseNext(connection, statements.keys, options, seqs)) this.consumer?.wake();
  }

  /** Whether a new delivery may have to wait here while another process could attempt it. */
  private get needsOthers(): boolean {
    return this.options.notify && this.shared && this.consumer?.hasFreeSlot !== true;
  }

  /**
   * @param how - `waits`: for transactions that record the same ids or keys, instead of failing with SQLSTATE 55P03; `isJoined`: in a
   *   transaction of the caller
   * @returns the known ones, `seq` of those that wait for their key, and the limited lanes among theirs
   */
  private async insertDeliveries(
    run: RunStatement,
    deliveries: readonly EnqueuedDelivery[],
    how: { readonly notifies: boolean; readonly waits: boolean; readonly isJoined?: boolean },
  ): Promise<{
    readonly records: readonly (DeliveryRecord | undefined)[];
    readonly held: readonly string[];
    readonly limitedLanes: readonly string[];
  }> {
    if (deliveries.length === 0) return { records: [], held: [], limitedLanes: [] };
    const { clock, name } = this.options;
    const first = new Map<string, EnqueuedDelivery>();
    for (const item of deliveries) {
      if (!first.has(item.delivery.id)) first.set(item.delivery.id, item);
    }
    const isKeyed = haveTurns(deliveries);
    const { given, payloads } = deliveryRows([...first.values()]);
    const { keys, record, recordKeyed, recordLocked } = this.statements;
    const isLocked = isKeyed && how.waits;
    const { isJoined = false } = how;
    const ownTimeout = how.waits ? null : SHORT_WAIT;
    const lockTimeout = isJoined ? this.connection.lockTimeout : ownTimeout;
    const hasRows = (found: readonly Row[]): boolean => found.length > 0;
    const runOnce: RunStatement = async (...query) =>
      isJoined ? runInTransaction(run, ...query, hasRows) : run(...query);
    if (isLocked) await runOnce(keys.lock, [name, given, lockTimeout, isJoined]);
    const statement = isLocked ? recordLocked : isKeyed ? recordKeyed : record;
    const rows = await runOnce(statement, [
      name,
      given,
      this.connection.now,
      clock.now(),
      lockTimeout,
      how.notifies ? this.channel : null,
      isJoined,
      payloads,
    ]);
    if (!hasRows(rows)) throw new Error('transaction is closed');
    const fresh = new Set(rows.filter(({ fresh }) => fresh === true).map((row) => row['given_id']));
    const known = new Map(
      rows.filter(({ id }) => id !== null).map((row) => [row['id'] as string, recordOf(row)]),
    );
    const unseen = [...first.keys()].filter((id) => !fresh.has(id) && !known.has(id));
    // Another transaction has committed them after the snapshot of the statement.
    if (unseen.length > 0) {
      for (const [id, record] of await this.knownDeliveries(run, unseen)) known.set(id, record);
    }
    const records = deliveries.map(({ delivery: { id } }) => {
      // The first of several with the same id was recorded.
      if (fresh.delete(id)) return undefined;
      // A caller's transaction with an old snapshot does not see the delivery that its insert conflicted with.
      return known.get(id) ?? pendingRecord(first.get(id)!);
    });
    const held = rows.filter((row) => row['recorded_held'] === true);
    const limited = rows.flatMap(({ limited_lane: lane }) =>
      typeof lane === 'string' ? [lane] : [],
    );
    return {
      records,
      held: held.map((row) => row['recorded_seq'] as string),
      limitedLanes: [...new Set(limited)],
    };
  }

  private async knownDeliveries(
    run: RunStatement,
    ids: readonly string[],
  ): Promise<Map<string, DeliveryRecord>> {
    const rows = await run(this.statements.find, [this.options.name, idList(ids)]);
    return new Map(rows.map((row) => [row['id'] as string, recordOf(row)]));
  }

  private requireRunning(): void {
    if (this.stopping) throw queueStopped();
  }
}

/** Whether one of the deliveries waits for the earlier ones of its key. */
function haveTurns(deliveries: readonly EnqueuedDelivery[]): boolean {
  return deliveries.some(({ delivery }) => takesTurn(delivery));
}

/** No string in PostgreSQL contains NUL, so no delivery has such an id. */
function idList(ids: readonly string[]): string {
  return JSON.stringify(ids.filter((id) => !id.includes('\0')));
}
