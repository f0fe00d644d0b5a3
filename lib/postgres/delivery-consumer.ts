import { type CancelWake, repeat, restAfter } from '../clock/webhook-clock.js';
import type { DeliveryHandler } from '../queue/webhook-queue.js';
import { isLimited, limitsKey } from '../queue/lane-limits.js';
import type { DeliveryLimits, DeliveryRun } from '../queue/webhook-delivery.js';
import { ClaimLoop, type ClaimResult } from './claim-loop.js';
import type { Row } from './database.js';
import { databaseFailure } from './database-failure.js';
import { DeliveryLimitTable } from './delivery-limit-table.js';
import {
  type ClaimedDelivery,
  claimedDelivery,
  outcomeRow,
  type OutcomeRow,
  releasedRow,
} from './delivery-row.js';
import type { ClaimRequest, DeliveryStatements } from './delivery-statements.js';
import type { LimitedSearch } from './limited-lanes.js';
import { OutcomeWriter } from './outcome-writer.js';
import type { QueueDatabase } from './queue-database.js';
import { QueueNotifications } from './queue-notifications.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';
import { QueueUpkeep } from './queue-upkeep.js';
import type { UpkeepStatements } from './upkeep-statements.js';

/** Milliseconds between two searches for deliveries that wait for their ordering key although no other one holds it. */
const RELEASE_INTERVAL = 5_000;
/** Such a search takes at most 1 part in this many of the time. */
const RELEASE_SHARE = 50;

interface DeliveryConsumerParts {
  readonly database: QueueDatabase;
  readonly statements: DeliveryStatements;
  readonly upkeep: UpkeepStatements;
  readonly options: ResolvedDatabaseQueueOptions;
  readonly handler: DeliveryHandler;
  /** The server, for messages. */
  readonly server: string;
  readonly channel: string;
}

/** Attempts the due deliveries of a queue, and keeps it in order. It starts when it is constructed. */
export class DeliveryConsumer {
  private readonly loop: ClaimLoop;
  private readonly outcomes: OutcomeWriter;
  /** Frees the slots of limited lanes: apart from the outcomes, since a transaction that has changed limits delays it. */
  private readonly ends: OutcomeWriter;
  private readonly limits: DeliveryLimitTable;
  private readonly upkeep: QueueUpkeep;
  private readonly notifications: QueueNotifications | undefined;
  private readonly timers: readonly CancelWake[];

  constructor(private readonly parts: DeliveryConsumerParts) {
    const { database, statements, options } = parts;
    const { clock, lease, notify } = options;
    this.limits = new DeliveryLimitTable(database, statements.limits, options);
    this.outcomes = new OutcomeWriter(
      async (rows) => {
        const values = [JSON.stringify(rows), database.now, clock.now()];
        const released = await database.query(statements.settle, values);
        const limitedLanes = rows.flatMap(({ lane, slot }) => (slot === undefined ? [] : [lane]));
        await this.releaseNext(
          released.map(({ seq }) => seq as string),
          limitedLanes,
        );
      },
      clock,
      lease,
    );
    this.ends = new OutcomeWriter(async (rows) => this.limits.end(rows), clock, lease);
    this.loop = new ClaimLoop({
      ...options,
      claim: async (request) => this.claim(request),
      findDueLanes: async (lanes) => this.findDueLanes(lanes),
      claimLimited: async (lanes) => this.limits.claim(lanes),
      findLimitedLanes: async () => this.findLimitedLanes(),
      onNewLimits: (lanes) => void this.limits.flag(lanes, true).catch(() => {}),
      run: async (delivery) => this.run(delivery),
      release: async (delivery) => this.write(releasedRow(delivery)),
      onOutage: (error) => warnOfOutage(error, parts.server),
    });
    this.timers = [
      repeat(clock, lease / 3, async () => void this.renewLeases().catch(() => {})),
      repeat(clock, RELEASE_INTERVAL, async () => this.releaseAll()),
    ];
    this.upkeep = new QueueUpkeep(database, parts.upkeep, options);
    this.loop.wake();
    if (notify) this.notifications = this.subscribe();
  }

  /** How many deliveries are being attempted. */
  get running(): number {
    return this.loop.running.length;
  }

  get hasFreeSlot(): boolean {
    return this.loop.hasFreeSlot;
  }

  /** Looks for due deliveries now, also in these limited lanes. */
  wake(limitedLanes: readonly string[] = []): void {
    this.loop.wake(limitedLanes);
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
    this.upkeep.end();
    await Promise.all([this.outcomes.close(), this.notifications?.stop()]);
    await this.ends.close();
  }

  private subscribe(): QueueNotifications {
    const { database, channel, options, server } = this.parts;
    const notifications = new QueueNotifications({
      listen: async (receive, onLost) =>
        (await database.open()).database.listen(database.timeout, channel, receive, onLost),
      notify: async (payload) =>
        database.query('SELECT pg_notify($1::text, $2::text)', [channel, payload]),
      name: options.name,
      onNotification: () => this.loop.wake('all'),
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
    const [{ seq, due_in: dueIn, limited_lanes: limited }] = rows as [Row];
    const limitedLanes =
      typeof limited === 'string' ? (JSON.parse(limited) as string[]) : undefined;
    if (seq !== null) return { claimed: rows.map((row) => claimedDelivery(row)), limitedLanes };
    return { claimed: [], dueIn: dueIn === null ? undefined : Number(dueIn), limitedLanes };
  }

  private async findLimitedLanes(): Promise<LimitedSearch> {
    const { unlimited, ...search } = await this.limits.findLanes();
    if (unlimited.length > 0) {
      await this.limits.flag(unlimited, false);
      this.loop.wake();
    }
    return search;
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
    if (run?.limits !== undefined) await this.updateLimits(claimed, run.limits).catch(() => {});
    await this.write(row);
    // It is due again already.
    if (row.due !== undefined && row.due <= options.clock.now()) {
      this.loop.wake(claimed.slot === undefined ? [] : [claimed.lane]);
    }
    return run?.attempt !== undefined;
  }

  /** Writes an outcome, then frees the slot of a limited lane. */
  private async write(row: OutcomeRow): Promise<void> {
    await this.outcomes.write(row);
    if (row.slot !== undefined) await this.ends.write(row);
  }

  /** Applies the limits of an endpoint if they are other ones than the queue knows. */
  private async updateLimits(
    { lane, limits }: ClaimedDelivery,
    now: DeliveryLimits,
  ): Promise<void> {
    if (limits === undefined ? !isLimited(now) : limits === limitsKey(now)) return;
    await this.limits.set(lane, now);
    this.loop.wake([lane]);
  }

  /** Lets the next delivery of each key start whose turn has ended. @param limitedLanes - those among their lanes */
  private async releaseNext(
    seqs: readonly string[],
    limitedLanes: readonly string[],
  ): Promise<void> {
    if (seqs.length === 0) return;
    const { database, statements, options } = this.parts;
    const values = [options.name, JSON.stringify(seqs), database.now];
    const released = await database.query(statements.releaseNext, values);
    if (released.length > 0) this.loop.wake(limitedLanes);
  }

  /**
   * Makes up for a process that died before {@link releaseNext}, and for transactions that were open meanwhile.
   *
   * @returns milliseconds until the next search
   */
  private async releaseAll(): Promise<number> {
    const { database, statements, options } = this.parts;
    const start = options.clock.now();
    const released = await database.query(statements.releaseAll, [options.name, database.now]);
    if (released.length > 0) this.loop.wake();
    return Math.max(RELEASE_INTERVAL, restAfter(options.clock.now() - start, RELEASE_SHARE));
  }

  /** If it fails, the next of the three renewals per lease makes up for it. */
  private async renewLeases(): Promise<void> {
    const { database, statements, options } = this.parts;
    const held = this.loop.running.map(({ seq, claim }) => ({ seq, claim }));
    if (held.length === 0) return;
    await database.query(statements.extend, [JSON.stringify(held), database.now, options.lease]);
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
