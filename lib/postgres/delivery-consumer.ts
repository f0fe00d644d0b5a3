import { type CancelWake, repeat, repeatInBatches } from '../clock/webhook-clock.js';
import type { DeliveryHandler } from '../queue/webhook-queue.js';
import { isLimited, limitsKey } from '../queue/lane-limits.js';
import { RETENTION_INTERVAL } from '../queue/queue-options.js';
import type { DeliveryLimits, DeliveryRun } from '../queue/webhook-delivery.js';
import {
  ClaimLoop,
  type ClaimResult,
  type LimitedClaimRequest,
  type LimitedSearch,
} from './claim-loop.js';
import type { Row } from './database.js';
import { databaseFailure } from './database-failure.js';
import {
  type ClaimedDelivery,
  claimedDelivery,
  limitRow,
  type OutcomeRow,
  outcomeRow,
  releasedRow,
} from './delivery-row.js';
import {
  type ClaimRequest,
  MERGED_AT_ONCE,
  type DeliveryStatements,
} from './delivery-statements.js';
import { FLAGGED_AT_ONCE } from './limit-statements.js';
import { OutcomeWriter } from './outcome-writer.js';
import type { QueueDatabase } from './queue-database.js';
import { QueueNotifications } from './queue-notifications.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';
import { DELETED_AT_ONCE, type RetentionStatements } from './retention-statements.js';

/** Milliseconds between two merges of counts. */
const MERGE_INTERVAL = 5_000;

/** Milliseconds between two pages in which unused keys, or unused limits, are looked for. */
const UNUSED_INTERVAL = 60_000;

/** Milliseconds between two searches for deliveries that wait for their ordering key although no other one holds it. */
const RELEASE_INTERVAL = 5_000;
/** Such a search takes at most 1 part in this many of the time. */
const RELEASE_SHARE = 50;

/** Before the first key, and before the first lane. */
const FIRST_KEY: readonly string[] = ['', ''];
const FIRST_LIMIT: readonly string[] = [''];

interface DeliveryConsumerParts {
  readonly database: QueueDatabase;
  readonly statements: DeliveryStatements;
  readonly retention: RetentionStatements;
  readonly options: ResolvedDatabaseQueueOptions;
  readonly handler: DeliveryHandler;
  /** The server, for messages. */
  readonly server: string;
  /** The channel of notifications. */
  readonly channel: string;
}

/** Attempts the due deliveries of a queue, and deletes those past their retention. It starts when it is constructed. */
export class DeliveryConsumer {
  private readonly loop: ClaimLoop;
  private readonly outcomes: OutcomeWriter;
  /** Frees the slots of limited lanes: apart from the outcomes, since a transaction that has changed limits delays it. */
  private readonly ends: OutcomeWriter;
  private readonly notifications: QueueNotifications | undefined;
  private readonly timers: readonly CancelWake[];
  /** The ends of the pages in which unused keys and limits were looked for last. */
  private keysUntil = FIRST_KEY;
  private limitsUntil = FIRST_LIMIT;

  constructor(private readonly parts: DeliveryConsumerParts) {
    const { clock, lease, notify, keepDelivered, keepDead, keepPayloads } = parts.options;
    this.outcomes = new OutcomeWriter(
      async (rows) => {
        const values = [JSON.stringify(rows), parts.database.now, clock.now()];
        const released = await parts.database.query(parts.statements.settle, values);
        const limitedLanes = rows.flatMap(({ lane, slot }) => (slot === undefined ? [] : [lane]));
        await this.releaseNext(
          released.map(({ seq }) => seq as string),
          limitedLanes,
        );
      },
      clock,
      lease,
    );
    this.ends = new OutcomeWriter(async (rows) => this.endLimited(rows), clock, lease);
    this.loop = new ClaimLoop({
      ...parts.options,
      claim: async (request) => this.claim(request),
      findDueLanes: async (lanes) => this.findDueLanes(lanes),
      claimLimited: async (lanes) => this.claimLimited(lanes),
      findLimitedLanes: async () => this.findLimitedLanes(),
      onNewLimits: (lanes) => void this.flag(lanes).catch(() => {}),
      run: async (delivery) => this.run(delivery),
      release: async (delivery) => this.write(releasedRow(delivery)),
      onOutage: (error) => warnOfOutage(error, parts.server),
    });
    this.timers = [
      repeat(clock, lease / 3, async () => void this.renewLeases().catch(() => {})),
      repeatInBatches(clock, RETENTION_INTERVAL, async () =>
        this.deleteOld('deleteDelivered', keepDelivered),
      ),
      ...(keepDead === undefined
        ? []
        : [
            repeatInBatches(clock, RETENTION_INTERVAL, async () =>
              this.deleteOld('deleteDead', keepDead),
            ),
          ]),
      ...(keepPayloads === undefined
        ? []
        : [
            repeatInBatches(clock, RETENTION_INTERVAL, async () => this.dropPayloads(keepPayloads)),
          ]),
      repeat(clock, UNUSED_INTERVAL, async () => this.deleteUnused()),
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
    this.outcomes.close();
    this.ends.close();
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

  private async claimLimited(lanes: readonly LimitedClaimRequest[]) {
    const { database, statements, options } = this.parts;
    const { name, lease, pollInterval } = options;
    const { now, timeout = 0 } = database;
    const values = [name, now, lease, JSON.stringify(lanes), pollInterval, timeout];
    const rows = await database.queryInIndexOrder(statements.limits.claim, values);
    const states = JSON.parse((rows[0]!['lanes'] as string | null) ?? '[]') as LimitedLaneState[];
    const found = states.map(({ lane, wait, isFull, ...state }) => ({
      lane,
      limits: limitsKey(limitsIn(state)),
      wait: wait ?? undefined,
      isFull: isFull === true,
    }));
    const limits = new Map(found.map((one) => [one.lane, one.limits]));
    return {
      claimed: rows
        .filter(({ seq }) => seq !== null)
        .map((row) => claimedDelivery(row, limits.get(row['lane'] as string))),
      lanes: found,
    };
  }

  private async findLimitedLanes(): Promise<LimitedSearch> {
    const { database, statements, options } = this.parts;
    const values = [options.name, database.now, options.pollInterval];
    const rows = await database.queryInIndexOrder(statements.limits.findLanes, values);
    const found = rows.filter(({ lane }) => lane !== null);
    const unlimited = found.filter(({ limits }) => limits === null);
    if (unlimited.length > 0) {
      await this.flag(
        unlimited.map(({ lane }) => lane as string),
        statements.limits.unflag,
      );
      this.loop.wake();
    }
    return {
      hasLimits: rows[0]!['has_limits'] === true,
      lanes: found
        .filter((row) => !unlimited.includes(row))
        .map(({ lane, wait, limits }) => ({
          lane: lane as string,
          wait: Number(wait),
          limits: limitsKey(limitsIn(JSON.parse(limits as string) as LaneLimitsColumns)),
        })),
    };
  }

  /** Takes the deliveries of newly limited lanes out of the way of other claims, or lets other claims take them again. */
  private async flag(
    lanes: readonly string[],
    statement = this.parts.statements.limits.flag,
  ): Promise<void> {
    const { database, options } = this.parts;
    for (const lane of lanes) {
      let flagged: readonly Row[];
      do {
        flagged = await database.queryInIndexOrder(statement, [options.name, lane]);
      } while (flagged.length === FLAGGED_AT_ONCE);
    }
  }

  /** Frees the slots of ended runs in their limited lanes. If it fails, they are free once the leases would have expired. */
  private async endLimited(rows: readonly OutcomeRow[]): Promise<void> {
    const ended = rows.map(({ lane, slot, overloaded }) => ({ lane, slot, overloaded }));
    const { database, statements, options } = this.parts;
    const values = [options.name, JSON.stringify(ended), database.now, options.clock.now()];
    await database.query(statements.limits.end, values);
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
    const { database, statements, options } = this.parts;
    const values = [options.name, JSON.stringify([limitRow(lane, now)]), database.now];
    await database.query(statements.limits.set, values);
    this.loop.wake([lane]);
  }

  /** Lets the next delivery of each key start whose turn has ended. @param limitedLanes - those among their lanes */
  private async releaseNext(
    seqs: readonly string[],
    limitedLanes: readonly string[],
  ): Promise<void> {
    if (seqs.length === 0) return;
    const { database, statements, options } = this.parts;
    const values = [options.name, JSON.stringify(seqs)];
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

  /** Deletes a batch. @returns whether there is more */
  private async deleteOld(which: 'deleteDelivered' | 'deleteDead', keep: number): Promise<boolean> {
    const { database, retention, options } = this.parts;
    const query = retention[which](options.name, keep, database.now);
    const [row] = await database.queryInIndexOrder(...query);
    const gone = Number(row!['gone']);
    const hasMore = gone >= DELETED_AT_ONCE;
    if (gone > 0 && !hasMore) await database.query(retention.deleteEmptyCounts, [options.name]);
    return hasMore;
  }

  /** Drops a batch of payloads. @returns whether there is more */
  private async dropPayloads(keep: number): Promise<boolean> {
    const { database, retention, options } = this.parts;
    const values = [options.name, database.now, keep];
    const [row] = await database.queryInIndexOrder(retention.dropPayloads, values);
    return Number(row!['seen']) >= DELETED_AT_ONCE;
  }

  /** Looks for unused keys and limits in the next page of each, and starts again after the last page. */
  private async deleteUnused(): Promise<void> {
    const { retention } = this.parts;
    this.keysUntil = await this.deleteUnusedOf(
      retention.deleteUnusedKeys,
      this.keysUntil,
      FIRST_KEY,
    );
    this.limitsUntil = await this.deleteUnusedOf(
      retention.deleteUnusedLimits,
      this.limitsUntil,
      FIRST_LIMIT,
    );
  }

  /** @returns the end of the page */
  private async deleteUnusedOf(
    statement: string,
    after: readonly string[],
    first: readonly string[],
  ): Promise<readonly string[]> {
    const { database, options } = this.parts;
    const values = [options.name, database.now, ...after];
    const [row] = await database.queryInIndexOrder(statement, values);
    const { seen, lane, ordering_key: key } = row!;
    if (Number(seen) < DELETED_AT_ONCE) return first;
    return (key === undefined ? [lane] : [lane, key]) as string[];
  }
}

interface LimitedLaneState extends LaneLimitsColumns {
  readonly lane: string;
  readonly wait: number | null;
  readonly isFull: boolean | null;
}

interface LaneLimitsColumns {
  readonly concurrency: number | null;
  readonly perSecond: number | null;
  readonly burst: number | null;
  readonly since: number | null;
}

function limitsIn({ concurrency, perSecond, burst, since }: LaneLimitsColumns): DeliveryLimits {
  return {
    concurrency: concurrency ?? undefined,
    perSecond: perSecond ?? undefined,
    burst: burst ?? undefined,
    since: since ?? undefined,
  };
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
