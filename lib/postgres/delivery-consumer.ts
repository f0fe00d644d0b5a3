import { type CancelWake, repeat } from '../clock/webhook-clock.js';
import type { DeliveryHandler } from '../queue/webhook-queue.js';
import type { DeliveryRun } from '../queue/webhook-delivery.js';
import { ClaimLoop, type ClaimResult } from './claim-loop.js';
import type { Row } from './database.js';
import { databaseFailure } from './database-failure.js';
import {
  type ClaimedDelivery,
  claimedDelivery,
  type OutcomeRow,
  outcomeRow,
  releasedRow,
} from './delivery-row.js';
import {
  type ClaimRequest,
  DELETED_AT_ONCE,
  MERGED_AT_ONCE,
  type DeliveryStatements,
} from './delivery-statements.js';
import { OutcomeWriter } from './outcome-writer.js';
import type { QueueDatabase } from './queue-database.js';
import { QueueNotifications } from './queue-notifications.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

/** Milliseconds between two merges of counts. */
const MERGE_INTERVAL = 5_000;

/** Milliseconds between two deletions of deliveries past their retention. */
const RETENTION_INTERVAL = 5_000;

/** Milliseconds between two searches for deliveries that wait for their ordering key although no other one holds it. */
const RELEASE_INTERVAL = 5_000;
/** Such a search takes at most 1 part in this many of the time. */
const RELEASE_SHARE = 50;

interface DeliveryConsumerParts {
  readonly database: QueueDatabase;
  readonly statements: DeliveryStatements;
  readonly options: ResolvedDatabaseQueueOptions;
  readonly handler: DeliveryHandler;
  /** The server, for messages. */
  readonly server: string;
  /** The channel of notifications. */
  readonly channel: string;
}

/** Attempts the due deliveries of a queue, from its construction on, and deletes those past their retention. */
export class DeliveryConsumer {
  private readonly loop: ClaimLoop;
  private readonly outcomes: OutcomeWriter;
  private readonly notifications: QueueNotifications | undefined;
  private readonly timers: readonly CancelWake[];

  constructor(private readonly parts: DeliveryConsumerParts) {
    const { clock, lease, notify, keepDelivered, keepDead } = parts.options;
    this.outcomes = new OutcomeWriter(
      async (rows) => {
        const values = [JSON.stringify(rows), parts.database.now, clock.now()];
        await parts.database.query(parts.statements.settle, values);
        await this.releaseNext(rows);
      },
      clock,
      lease,
    );
    this.loop = new ClaimLoop({
      ...parts.options,
      claim: async (request) => this.claim(request),
      findDueLanes: async (lanes) => this.findDueLanes(lanes),
      run: async (delivery) => this.run(delivery),
      release: async (delivery) => this.outcomes.write(releasedRow(delivery)),
      onOutage: (error) => warnOfOutage(error, parts.server),
    });
    this.timers = [
      repeat(clock, lease / 3, async () => void this.renewLeases().catch(() => {})),
      repeat(clock, RETENTION_INTERVAL, async () =>
        this.deleteOld('deleteDelivered', keepDelivered),
      ),
      ...(keepDead === undefined
        ? []
        : [repeat(clock, RETENTION_INTERVAL, async () => this.deleteOld('deleteDead', keepDead))]),
      repeat(clock, MERGE_INTERVAL, async () => this.mergeCounts()),
      repeat(clock, RELEASE_INTERVAL, async () => this.releaseAll()),
    ];
    this.loop.wake();
    if (notify) this.notifications = this.subscribe();
  }

  /** How many deliveries are being attempted. */
  get running(): number {
    return this.loop.running.length;
  }

  /** Whether another delivery can start now. */
  get hasFreeSlot(): boolean {
    return this.loop.hasFreeSlot;
  }

  /** Looks for due deliveries now. */
  wake(): void {
    this.loop.wake();
  }

  /** Attempts deliveries until none is due or running. */
  async drain(): Promise<void> {
    await this.releaseAll();
    await this.loop.drain();
  }

  /** Starts no more attempts; resolves when none is running. */
  async stop(): Promise<void> {
    await this.loop.stop();
  }

  /** Ends everything; the leases of running deliveries expire. */
  async end(): Promise<void> {
    for (const cancel of this.timers) cancel();
    this.outcomes.close();
    await this.notifications?.stop();
  }

  private subscribe(): QueueNotifications {
    const { database, channel, options, server } = this.parts;
    const notifications = new QueueNotifications({
      listen: async (receive, onLost) =>
        (await database.open()).database.listen(database.timeout, channel, receive, onLost),
      notify: async (payload) =>
        database.query('SELECT pg_notify($1::text, $2::text)', [channel, payload]),
      name: options.name,
      onNotification: () => this.loop.wake(),
      onUnsupported: () => warnOfUnsupportedNotify(server),
      clock: options.clock,
    });
    notifications.start();
    return notifications;
  }

  private async claim(request: ClaimRequest): Promise<ClaimResult> {
    const { database, statements, options } = this.parts;
    const query = statements.claim(options.name, database.now, options.lease, request);
    const rows = await database.queryInIndexOrder(...query);
    const [{ seq, due_in: dueIn }] = rows as [Row];
    if (seq !== null) return { claimed: rows.map(claimedDelivery) };
    return { claimed: [], dueIn: dueIn === null ? undefined : Number(dueIn) };
  }

  private async findDueLanes(lanes: readonly string[]): Promise<string[]> {
    const { database, statements, options } = this.parts;
    const values = [options.name, JSON.stringify(lanes), database.now];
    const rows = await database.queryInIndexOrder(statements.findDueLanes, values);
    return rows.map(({ lane }) => lane as string);
  }

  private async run(claimed: ClaimedDelivery): Promise<boolean> {
    const { handler, options } = this.parts;
    let run: DeliveryRun | undefined;
    try {
      run = await handler(claimed.read(), claimed.attempts + 1);
    } catch {
      // The handler has logged its error; the delivery runs again.
    }
    const row = outcomeRow(claimed, run, options.clock.now());
    await this.outcomes.write(row);
    // It is due again already.
    if (row.due !== undefined && row.due <= options.clock.now()) this.loop.wake();
    return run?.attempt !== undefined;
  }

  /** Lets the next delivery of each key start whose turn has ended. */
  private async releaseNext(rows: readonly OutcomeRow[]): Promise<void> {
    const seqs = rows.filter(({ releases }) => releases).map(({ seq }) => seq);
    if (seqs.length === 0) return;
    const { database, statements, options } = this.parts;
    const values = [options.name, JSON.stringify(seqs)];
    const released = await database.query(statements.releaseNext, values);
    if (released.length > 0) this.loop.wake();
  }

  /**
   * Makes up for a process that died before {@link releaseNext}, and for transactions that were open meanwhile.
   *
   * @returns milliseconds until the next search
   */
  private async releaseAll(): Promise<number> {
    const { database, statements, options } = this.parts;
    const start = options.clock.now();
    const released = await database.query(statements.releaseAll, [options.name]);
    if (released.length > 0) this.loop.wake();
    return Math.max(RELEASE_INTERVAL, RELEASE_SHARE * (options.clock.now() - start));
  }

  /** If it fails, the next of the three renewals per lease makes up for it. */
  private async renewLeases(): Promise<void> {
    const { database, statements, options } = this.parts;
    const held = this.loop.running.map(({ seq, claim }) => ({ seq, claim }));
    if (held.length === 0) return;
    await database.query(statements.extend, [JSON.stringify(held), database.now, options.lease]);
  }

  /** @returns milliseconds until the next batch */
  private async mergeCounts(): Promise<number> {
    const { database, statements, options } = this.parts;
    const [row] = await database.query(statements.merge, [options.name]);
    return Number(row!['merged']) < MERGED_AT_ONCE ? MERGE_INTERVAL : 0;
  }

  /** @returns milliseconds until the next batch: a large deletion rests after each batch for as long as that took */
  private async deleteOld(which: 'deleteDelivered' | 'deleteDead', keep: number): Promise<number> {
    const { database, statements, options } = this.parts;
    const start = options.clock.now();
    const query = statements[which](options.name, keep, database.now);
    const [row] = await database.queryInIndexOrder(...query);
    if (Number(row!['gone']) < DELETED_AT_ONCE) {
      if (row!['gone'] !== 0) await database.query(statements.deleteEmptyCounts, [options.name]);
      return RETENTION_INTERVAL;
    }
    return Math.min(RETENTION_INTERVAL, options.clock.now() - start);
  }
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
