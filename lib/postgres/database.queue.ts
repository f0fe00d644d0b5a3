import { inTime, waitUntil } from '../clock/webhook-clock.js';
import { WebhookDeliveryError, WebhookStoreError } from '../errors/webhook.error.js';
import { unprinted } from '../options/unprinted.js';
import type {
  DeliveryAttempt,
  DeliveryCountFilter,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryPageRequest,
  DeliveryRecord,
  ListedDelivery,
} from '../queue/delivery-record.js';
import {
  WebhookQueue,
  type DeliveryHandler,
  type DeliveryRun,
  type EnqueuedDelivery,
  type EnqueueOptions,
} from '../queue/webhook-queue.js';
import { ClaimLoop, type ClaimResult } from './claim-loop.js';
import type { Database, Row, RunStatement } from './database.js';
import { databaseFailure, isOutage } from './database-failure.js';
import {
  type DatabaseIdentity,
  readIdentity,
  requireSameDatabase,
  warnOfSkew,
} from './database-identity.js';
import {
  attemptOf,
  type ClaimedDelivery,
  claimedDelivery,
  countsOf,
  deliveryRow,
  listedDelivery,
  type OutcomeRow,
  outcomeRow,
  recordOf,
  releasedRow,
} from './delivery-row.js';
import {
  type ClaimRequest,
  DELETED_AT_ONCE,
  DeliveryStatements,
  type Query,
} from './delivery-statements.js';
import { GroupCommit } from './group-commit.js';
import { SchemaMigrator } from './migrations/schema.migrator.js';
import { OutcomeWriter } from './outcome-writer.js';
import { QueueNotifications } from './queue-notifications.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';
import { RetentionTimer } from './retention-timer.js';

/** Milliseconds that `enqueue` in a transaction waits until the queue is open. */
const TIME_TO_OPEN = 5_000;
/** Milliseconds to close the database, even if the deadline of the shutdown has passed. */
const TIME_TO_CLOSE = 2_000;
/** Milliseconds for a step of the schema, which may wait for another process that runs it. */
const MIGRATION_TIMEOUT = 60_000;
/** A statement may take this part of a lease, so that an outcome can be written again in time over another connection. */
const STATEMENTS_PER_LEASE = 3;
/** `enqueue` fails after so many timeouts: it may wait for other calls, for a connection and for its statement. */
const TIMEOUTS_PER_CALL = 3;

/** Opens and closes the database of a queue, and knows the transactions of its drivers. */
export interface QueueHost {
  /** Whether other processes may use the same deliveries. */
  readonly shared: boolean;
  readonly schema: string;
  /** The server, for messages. */
  readonly server: string;
  /** Whether start-up may change the schema. */
  readonly migrates: boolean;
  /** @throws the error of the driver */
  open(): Promise<Database>;
  /** Closes what `open` has opened, and leaves the application's own pool open. */
  close(): Promise<void>;
  /**
   * Wraps a transaction of the caller.
   *
   * @throws {@link WebhookDeliveryError} `unsupported_option` if it is not a transaction
   */
  join(tx: unknown): RunStatement;
}

interface OpenQueue {
  readonly database: Database;
  readonly identity: DatabaseIdentity;
}

/** Stores deliveries in PostgreSQL, in tables of this package: the base of `PostgresQueue` and `PgliteQueue`. */
export abstract class DatabaseQueue extends WebhookQueue {
  override readonly durable = true;
  override readonly shared: boolean;
  override readonly transactional = true;

  private readonly statements: DeliveryStatements;
  private readonly outcomes: OutcomeWriter;
  private readonly groups: GroupCommit;
  private readonly retention: RetentionTimer;
  /** Milliseconds; `undefined` for an embedded database, whose statements wait for transactions of the application. */
  private readonly timeout: number | undefined;
  private readonly channel: string;
  private opening: Promise<OpenQueue> | undefined;
  private isOpen = false;
  private loop: ClaimLoop | undefined;
  private notifications: QueueNotifications | undefined;
  private cancelHeartbeat = (): void => {};
  private stopping = false;
  /** Set when `stop` no longer waits for calls of `enqueue`. */
  private closed = false;

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
    this.statements = new DeliveryStatements(host.schema);
    const { clock, lease, timeout } = options;
    this.timeout = host.shared ? Math.min(timeout, lease / STATEMENTS_PER_LEASE) : undefined;
    this.outcomes = new OutcomeWriter(async (batch) => this.settle(batch), clock, lease);
    this.groups = new GroupCommit({
      recordGroup: async (deliveries) => this.commit(deliveries, { waits: false }),
      recordCall: async (deliveries) => this.commit(deliveries, { waits: true }),
      isOutage,
      clock,
    });
    this.retention = new RetentionTimer(async () => this.deleteDelivered(), clock);
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
    { tx }: EnqueueOptions = {},
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    this.requireRunning();
    if (tx !== undefined) return this.enqueueIn(tx, deliveries);
    return this.reporting(async () =>
      this.inTime(TIMEOUTS_PER_CALL, async () => this.groups.enqueue(deliveries)),
    );
  }

  override async consume(handler: DeliveryHandler): Promise<void> {
    const { clock, name, notify } = this.options;
    await this.reporting(async () => this.open());
    // An application may shut down while it starts.
    if (this.stopping) return;
    this.loop = new ClaimLoop({
      ...this.options,
      claim: async (request) => this.claim(request),
      findDueLanes: async (lanes) => this.findDueLanes(lanes),
      run: async (delivery) => this.run(delivery, handler),
      release: async (delivery) => this.outcomes.write(releasedRow(delivery)),
      onOutage: (error) => warnOfOutage(error, this.host.server),
    });
    this.renewLeases();
    this.retention.start();
    this.loop.wake();
    if (!notify) return;
    this.notifications = new QueueNotifications({
      listen: async (receive, onLost) => {
        const { database } = await this.open();
        return database.listen(this.timeout, this.channel, receive, onLost);
      },
      notify: async (payload) =>
        this.query('SELECT pg_notify($1::text, $2::text)', [this.channel, payload]),
      name,
      onNotification: () => this.loop?.wake(),
      onUnsupported: () => warnOfUnsupportedNotify(this.host.server),
      clock,
    });
    this.notifications.start();
  }

  override async find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]> {
    if (ids.length === 0) return [];
    const known = await this.reporting(async () =>
      this.knownDeliveries((statement, values) => this.query(statement, values), ids),
    );
    return ids.map((id) => known.get(id));
  }

  override async list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]> {
    const rows = await this.search(this.statements.list(this.options.name, filter, page));
    return rows.map(listedDelivery);
  }

  override async attempts(id: string): Promise<readonly DeliveryAttempt[]> {
    const rows = await this.search([this.statements.attempts, [this.options.name, id]]);
    return rows.map(attemptOf);
  }

  override async counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]> {
    const rows = await this.search(this.statements.counts(this.options.name, filter));
    return rows.map(countsOf);
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.requireRunning();
    const channel = this.needsOthers ? this.channel : null;
    const values = [this.options.name, idList(ids), this.now, channel];
    const rows = await this.reporting(async () => this.query(this.statements.redeliver, values));
    this.loop?.wake();
    const changed = new Set(rows.map(({ id }) => id));
    return [...new Set(ids)].filter((id) => changed.has(id));
  }

  override async prune(
    before: number,
    { tenant }: { readonly tenant?: string | undefined } = {},
  ): Promise<number> {
    let pruned = 0;
    for (;;) {
      const gone = await this.deleteBatch(this.statements.prune(this.options.name, before, tenant));
      pruned += gone;
      if (gone < DELETED_AT_ONCE) return pruned;
    }
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
    this.retention.stop();
    this.outcomes.close();
    const left = this.loop?.running.length ?? 0;
    // An unavailable server must not delay the shutdown; its connections end with the process.
    const closed = this.opening?.then(async () => this.close()).catch(() => {});
    await waitUntil(clock, Math.max(deadline, clock.now() + TIME_TO_CLOSE), closed);
    return left;
  }

  private async close(): Promise<void> {
    await this.notifications?.stop();
    await this.host.close();
  }

  /** Opens the queue once. A connection that is lost later is replaced by the pool. */
  protected async open(): Promise<OpenQueue> {
    if (this.closed) throw this.shuttingDown();
    this.opening ??= this.openDatabase().catch((error: unknown) => {
      this.opening = undefined;
      throw error;
    });
    return this.opening;
  }

  private async openDatabase(): Promise<OpenQueue> {
    const database = await this.host.open();
    try {
      await this.prepareSchema(database);
      const identity = await readIdentity(async (statement, values) =>
        database.query(this.timeout, statement, values),
      );
      if (this.options.usesDatabaseClock && this.shared) {
        await warnOfSkew(database, this.timeout, this.options.clock);
      }
      this.isOpen = true;
      return { database, identity };
    } catch (error) {
      // The next call opens it again; without this, the pool and the lock of this attempt would leak.
      await this.host.close().catch(() => {});
      throw error;
    }
  }

  private async prepareSchema(database: Database): Promise<void> {
    const migrator = new SchemaMigrator(
      async (statement, values) =>
        database.query(this.shared ? MIGRATION_TIMEOUT : undefined, statement, values),
      this.host.schema,
    );
    if (this.host.migrates) await migrator.migrate();
    else await migrator.requireCurrent();
  }

  /** Records deliveries in a transaction of the caller. */
  private async enqueueIn(
    tx: unknown,
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    const run = this.host.join(tx);
    const { identity } = await this.openInTime();
    return this.reporting(async () =>
      this.inTime(1, async () => {
        await requireSameDatabase(tx as object, run, identity);
        return this.record(run, deliveries, { notifies: this.options.notify, waits: true });
      }),
    );
  }

  /** Opening takes a connection. If transactions hold every connection of the pool, they would wait for it forever. */
  private async openInTime(): Promise<OpenQueue> {
    if (this.isOpen) return this.open();
    const makeError = (): WebhookStoreError =>
      new WebhookStoreError(
        'store_unavailable',
        `The delivery queue is still being opened in ${this.host.server}: its pool may have no free connection. ` +
          'Use the queue once before the first transaction, as the start of an application does, or pass it a pool of its own.',
      );
    const open = async (): Promise<OpenQueue> => this.reporting(async () => this.open());
    return inTime(this.options.clock, TIME_TO_OPEN, open, makeError);
  }

  /** Records deliveries in a commit of their own, and starts to attempt them. */
  private async commit(
    deliveries: readonly EnqueuedDelivery[],
    { waits }: { readonly waits: boolean },
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    if (this.closed) throw this.shuttingDown();
    const run: RunStatement = async (statement, values) => this.query(statement, values);
    const records = await this.record(run, deliveries, { notifies: this.needsOthers, waits });
    this.loop?.wake();
    return records;
  }

  /** Whether a new delivery may have to wait here while another process could attempt it. */
  private get needsOthers(): boolean {
    return this.options.notify && this.shared && this.loop?.hasFreeSlot !== true;
  }

  /** @param how - `waits`: for transactions that record the same ids, instead of failing with SQLSTATE 55P03 */
  private async record(
    run: RunStatement,
    deliveries: readonly EnqueuedDelivery[],
    how: { readonly notifies: boolean; readonly waits: boolean },
  ): Promise<readonly (DeliveryRecord | undefined)[]> {
    if (deliveries.length === 0) return [];
    const { clock, name } = this.options;
    const first = new Map<string, EnqueuedDelivery>();
    for (const item of deliveries) {
      if (!first.has(item.delivery.id)) first.set(item.delivery.id, item);
    }
    const rows = await run(this.statements.record, [
      name,
      JSON.stringify([...first.values()].map(deliveryRow)),
      this.now,
      clock.now(),
      !how.waits,
      how.notifies ? this.channel : null,
    ]);
    const fresh = new Set(rows.filter(({ fresh }) => fresh === true).map((row) => row['given_id']));
    const known = new Map(
      rows.filter(({ id }) => id !== null).map((row) => [row['id'] as string, recordOf(row)]),
    );
    const unseen = [...first.keys()].filter((id) => !fresh.has(id) && !known.has(id));
    // Another transaction has committed them after the snapshot of the statement.
    if (unseen.length > 0) {
      for (const [id, record] of await this.knownDeliveries(run, unseen)) known.set(id, record);
    }
    return deliveries.map(({ delivery: { id } }) => {
      // The first of several with the same id was recorded.
      if (fresh.delete(id)) return undefined;
      // A caller's transaction with an old snapshot does not see the delivery that its insert conflicted with.
      return known.get(id) ?? pendingRecord(first.get(id)!);
    });
  }

  private async knownDeliveries(
    run: RunStatement,
    ids: readonly string[],
  ): Promise<Map<string, DeliveryRecord>> {
    const rows = await run(this.statements.find, [this.options.name, idList(ids)]);
    return new Map(rows.map((row) => [row['id'] as string, recordOf(row)]));
  }

  private async claim(request: ClaimRequest): Promise<ClaimResult> {
    const { name, lease } = this.options;
    const [statement, values] = this.statements.claim(name, this.now, lease, request);
    const rows = await this.queryInIndexOrder(statement, values);
    const [{ seq, due_in: dueIn }] = rows as [Row];
    if (seq !== null) return { claimed: rows.map(claimedDelivery) };
    return { claimed: [], dueIn: dueIn === null ? undefined : Number(dueIn) };
  }

  private async findDueLanes(lanes: readonly string[]): Promise<string[]> {
    const values = [this.options.name, JSON.stringify(lanes), this.now];
    const rows = await this.queryInIndexOrder(this.statements.findDueLanes, values);
    return rows.map(({ lane }) => lane as string);
  }

  private async run(claimed: ClaimedDelivery, handler: DeliveryHandler): Promise<boolean> {
    let run: DeliveryRun | undefined;
    try {
      run = await handler(claimed.read(), claimed.attempts + 1);
    } catch {
      // The handler has logged its error; the delivery runs again.
    }
    const row = outcomeRow(claimed, run, this.options.clock.now());
    await this.outcomes.write(row);
    // It is due again already.
    if (row.due !== undefined && row.due <= this.options.clock.now()) this.loop?.wake();
    return run?.attempt !== undefined;
  }

  private async settle(outcomes: readonly OutcomeRow[]): Promise<void> {
    const values = [JSON.stringify(outcomes), this.now, this.options.clock.now()];
    await this.query(this.statements.settle, values);
  }

  /** Renews the leases of running deliveries, three times per lease. */
  private renewLeases(): void {
    const { clock, lease } = this.options;
    this.cancelHeartbeat = clock.wakeAt(clock.now() + lease / 3, () => {
      const held = (this.loop?.running ?? []).map(({ seq, claim }) => ({ seq, claim }));
      this.renewLeases();
      if (held.length === 0) return;
      // If it fails, the next renewal makes up for it.
      this.query(this.statements.extend, [JSON.stringify(held), this.now, lease]).catch(() => {});
    });
  }

  private async deleteDelivered(): Promise<boolean> {
    const { name, keepDelivered } = this.options;
    const query = this.statements.deleteDelivered(name, keepDelivered, this.now);
    return (await this.deleteBatch(query)) === DELETED_AT_ONCE;
  }

  private async deleteBatch([statement, values]: Query): Promise<number> {
    return this.reporting(async () => {
      const [row] = await this.queryInIndexOrder(statement, values);
      return Number(row!['gone']);
    });
  }

  /** Runs a statement that searches for its values: no string in PostgreSQL contains NUL, so it finds nothing. */
  private async search([statement, values]: Query): Promise<readonly Row[]> {
    if (values.some((value) => typeof value === 'string' && value.includes('\0'))) return [];
    return this.reporting(async () => this.query(statement, values));
  }

  private async query(statement: string, values: readonly unknown[]): Promise<readonly Row[]> {
    return (await this.open()).database.query(this.timeout, statement, values);
  }

  private async queryInIndexOrder(
    statement: string,
    values: readonly unknown[],
  ): Promise<readonly Row[]> {
    return (await this.open()).database.queryInIndexOrder(this.timeout, statement, values);
  }

  /** The time for a statement: `null` for the clock of the database. */
  private get now(): number | null {
    return this.options.usesDatabaseClock ? null : this.options.clock.now();
  }

  private async inTime<T>(timeouts: number, work: () => Promise<T>): Promise<T> {
    if (this.timeout === undefined) return work();
    const makeError = (): Error => new Error('timeout expired');
    return inTime(this.options.clock, timeouts * this.timeout, work, makeError);
  }

  /** @throws {@link WebhookStoreError} for every error of the driver */
  protected async reporting<T>(work: () => Promise<T>): Promise<T> {
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

/** No string in PostgreSQL contains NUL, so no delivery has such an id. */
function idList(ids: readonly string[]): string {
  return JSON.stringify(ids.filter((id) => !id.includes('\0')));
}

function pendingRecord({ delivery, notBefore }: EnqueuedDelivery): DeliveryRecord {
  const { createdAt: updatedAt } = delivery;
  return { delivery, status: 'pending', attempts: 0, nextAttemptAt: notBefore, updatedAt };
}

function warnOfOutage(error: unknown, server: string): void {
  const { message } = databaseFailure('The delivery queue', error, server);
  process.emitWarning(`${message} Deliveries wait; the queue tries again every few seconds.`, {
    code: 'WEBHOOK_QUEUE_UNAVAILABLE',
  });
}

function warnOfUnsupportedNotify(server: string): void {
  process.emitWarning(
    `The delivery queue receives no notifications from ${server}, which is probably behind a transaction pooler; it polls ` +
      'instead. Set notify: false, or connect to PostgreSQL directly or in session mode.',
    { code: 'WEBHOOK_QUEUE_NOTIFY_UNSUPPORTED' },
  );
}
