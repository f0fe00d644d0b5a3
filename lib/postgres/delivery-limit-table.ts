import { isLimited, limitsKey } from '../queue/lane-limits.js';
import type { DeliveryLimits } from '../queue/webhook-delivery.js';
import type { Row } from './database.js';
import { type ClaimedDelivery, claimedDelivery, type OutcomeRow } from './delivery-row.js';
import { FLAGGED_AT_ONCE, type LimitStatements } from './limit-statements.js';
import type { QueueConnection } from './queue-connection.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

/** Claims at most `slots` deliveries of a limited lane. */
export interface LimitedClaimRequest {
  readonly lane: string;
  readonly slots: number;
}

/** A limited lane after a claim. */
export interface LimitedLane {
  readonly lane: string;
  /** Equal for equal limits. */
  readonly limits: string;
  /** Milliseconds until more may be claimed; `undefined` if none is due soon. */
  readonly wait: number | undefined;
  /** Whether more may be claimed once an attempt has ended. */
  readonly isFull: boolean;
}

/** What a search for limited lanes has found. */
export interface LimitedSearch {
  /** Whether any lane has limits. */
  readonly hasLimits: boolean;
  /** Those with deliveries that are due soon, each with its wait. */
  readonly lanes: readonly Omit<LimitedLane, 'isFull'>[];
  /** Lanes whose limits were deleted, and that are still flagged. */
  readonly unlimited: readonly string[];
}

/** What a claim from limited lanes has found. Lanes that are absent are being claimed from by another process. */
export interface LimitedClaim {
  readonly claimed: readonly ClaimedDelivery[];
  readonly lanes: readonly LimitedLane[];
}

/** Claims from limited lanes, and what is stored of their limits. */
export class DeliveryLimitTable {
  constructor(
    private readonly connection: QueueConnection,
    private readonly statements: LimitStatements,
    private readonly options: ResolvedDatabaseQueueOptions,
  ) {}

  /** Claims due deliveries of these lanes, as far as their limits allow. */
  async claim(lanes: readonly LimitedClaimRequest[]): Promise<LimitedClaim> {
    const { name, lease, pollInterval } = this.options;
    const { now, timeout = this.options.timeout } = this.connection;
    const values = [name, now, lease, JSON.stringify(lanes), pollInterval, timeout];
    const rows = await this.connection.queryInIndexOrder(this.statements.claim, values);
    const states = JSON.parse((rows[0]!['lanes'] as string | null) ?? '[]') as LimitedLaneState[];
    const found = states.map(({ lane, wait, isFull, ...state }) => ({
      lane,
      limits: keyOf(state),
      wait: wait ?? undefined,
      isFull: isFull === true,
    }));
    const limits = new Map(found.map((one) => [one.lane, one.limits]));
    const claimed = rows
      .filter(({ seq }) => seq !== null)
      .map((row) => claimedDelivery(row, limits.get(row['lane'] as string)));
    return { claimed, lanes: found };
  }

  /** Searches for flagged lanes with deliveries that are due soon. */
  async findLanes(): Promise<LimitedSearch> {
    const values = [this.options.name, this.connection.now, this.options.pollInterval];
    const rows = await this.connection.queryInIndexOrder(this.statements.findLanes, values);
    const found = rows.filter(({ lane }) => lane !== null);
    return {
      hasLimits: rows[0]!['has_limits'] === true,
      lanes: found
        .filter(({ limits }) => limits !== null)
        .map(({ lane, wait, limits }) => ({
          lane: lane as string,
          wait: Number(wait),
          limits: keyOf(JSON.parse(limits as string) as LimitColumns),
        })),
      unlimited: found.filter(({ limits }) => limits === null).map(({ lane }) => lane as string),
    };
  }

  /** Takes the deliveries of newly limited lanes out of the way of other claims, or lets other claims take them again. */
  async flag(lanes: readonly string[], isLimited: boolean): Promise<void> {
    const statement = isLimited ? this.statements.flag : this.statements.unflag;
    for (const lane of lanes) {
      let flagged: readonly Row[];
      do {
        flagged = await this.connection.queryInIndexOrder(statement, [this.options.name, lane]);
      } while (flagged.length === FLAGGED_AT_ONCE);
    }
  }

  /** Frees the slots of ended runs. If it fails, they are free once the leases would have expired. */
  async end(rows: readonly OutcomeRow[]): Promise<void> {
    const ended = rows.map(({ lane, slot, overloaded }) => ({ lane, slot, overloaded }));
    const { now } = this.connection;
    const values = [this.options.name, JSON.stringify(ended), now, this.options.clock.now()];
    await this.connection.query(this.statements.end, values);
  }

  /**
   * Stores the limits of an endpoint, unless its delivery was claimed by the same.
   *
   * @returns whether they were stored
   */
  async update({ lane, limits }: ClaimedDelivery, now: DeliveryLimits): Promise<boolean> {
    if (limits === undefined ? !isLimited(now) : limits === limitsKey(now)) return false;
    await this.set(new Map([[lane, now]]));
    return true;
  }

  /** Sets limits by lane. @returns the lanes whose limits were other ones */
  async set(limits: ReadonlyMap<string, DeliveryLimits>): Promise<readonly string[]> {
    const rows = JSON.stringify([...limits].map(([lane, one]) => limitRow(lane, one)));
    const values = [this.options.name, rows, this.connection.now];
    const changed = await this.connection.query(this.statements.set, values);
    return changed.map(({ lane }) => lane as string);
  }
}

interface LimitedLaneState extends LimitColumns {
  readonly lane: string;
  readonly wait: number | null;
  readonly isFull: boolean | null;
}

interface LimitColumns {
  readonly concurrency: number | null;
  readonly perSecond: number | null;
  readonly burst: number | null;
  readonly since: number | null;
}

function keyOf({ concurrency, perSecond, burst, since }: LimitColumns): string {
  return limitsKey({
    concurrency: concurrency ?? undefined,
    perSecond: perSecond ?? undefined,
    burst: burst ?? undefined,
    since: since ?? undefined,
  });
}

/** The limits of a lane as a row for `set`. */
function limitRow(lane: string, { concurrency, perSecond, burst, since }: DeliveryLimits): object {
  return { lane, concurrency, per_second: perSecond, burst, since };
}
