import { restAfter } from '../clock/webhook-clock.js';
import type { DeliveryLimitTable } from './delivery-limit-table.js';
import type { ClaimedDelivery } from './delivery-row.js';
import type { FreeSlots } from './lane-division.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

interface Schedule {
  /** When to claim from it again, in epoch milliseconds. */
  readonly at: number;
  /** Whether it may continue once an attempt ends. */
  readonly isFull?: boolean | undefined;
  /** Equal for equal limits; `undefined` if they are not known. */
  readonly limits?: string | undefined;
  /** The claims from it that were not answered, with the one under way. */
  readonly asked?: number | undefined;
}

/** Milliseconds until a lane is asked again from which another process is claiming. */
const BUSY_WAIT = 20;
/** Claims after which a lane is forgotten that may have lost its limits, by a rollback; a search finds it if it has some. */
const MOST_ASKED = 10;

/** A search for limited lanes takes at most 1 part in this many of the time. */
const SEARCH_SHARE = 20;
/** Lanes of one claim. */
const LANES_AT_ONCE = 100;

/**
 * The limited lanes with deliveries, and when this process claims from each. A delivery behind a limit is in no index that other
 * claims read, so its number does not matter.
 */
export class LimitedLanes {
  /** Whether any lane has limits, as far as this process knows. */
  hasLimits = false;
  /** Whether a lane got limits since the last search began, which may not have seen them. */
  private hasNewLimits = false;
  private readonly lanes = new Map<string, Schedule>();
  /** Epoch milliseconds of the next search. */
  private nextSearch = 0;

  constructor(
    private readonly table: Pick<DeliveryLimitTable, 'claimWithinLimits' | 'findLanes' | 'flag'>,
    private readonly options: Pick<ResolvedDatabaseQueueOptions, 'clock' | 'pollInterval'>,
  ) {}

  /** Claims from these lanes next; `'all'` searches for such lanes first. */
  wake(lanes: readonly string[] | 'all'): void {
    if (lanes === 'all') {
      this.nextSearch = 0;
      return;
    }
    for (const lane of lanes) {
      this.hasLimits = this.hasNewLimits = true;
      this.set(lane, this.options.clock.now());
    }
  }

  /** Searches again for all limited lanes. */
  forget(): void {
    this.lanes.clear();
    this.nextSearch = 0;
  }

  /**
   * Searches for limited lanes with due deliveries, if it is time for that.
   *
   * @returns whether lanes have lost their limits, so that other claims take their deliveries now
   */
  async search(): Promise<boolean> {
    const { clock, pollInterval } = this.options;
    const start = clock.now();
    if (start < this.nextSearch) return false;
    this.nextSearch = start + pollInterval;
    this.hasNewLimits = false;
    const { hasLimits, lanes, unlimited } = await this.table.findLanes();
    if (unlimited.length > 0) await this.table.flag(unlimited, false);
    this.hasLimits = hasLimits || this.hasNewLimits;
    this.nextSearch = Math.max(
      this.nextSearch,
      start + restAfter(clock.now() - start, SEARCH_SHARE),
    );
    for (const { lane, wait = 0, limits } of lanes) this.found(lane, start + wait, limits);
    return unlimited.length > 0;
  }

  /** Another claim has found that these lanes have got limits, after some of their deliveries were recorded. */
  discovered(lanes: readonly string[], at: number): void {
    for (const lane of lanes) this.found(lane, at);
    void this.table.flag(lanes, true).catch(() => {});
  }

  /**
   * Claims once from the lanes whose time has come.
   *
   * @param most - deliveries
   * @returns `undefined` if there is nothing to ask for
   */
  async claimFromDueLanes(
    most: number,
    freeSlots: () => FreeSlots,
  ): Promise<readonly ClaimedDelivery[] | undefined> {
    const now = this.options.clock.now();
    const request = this.request(now, most, freeSlots);
    if (request.length === 0) return undefined;
    for (const { lane } of request) this.ask(lane, now);
    const { claimed, lanes } = await this.table.claimWithinLimits(request);
    for (const { lane, wait, isFull, limits } of lanes) {
      this.answer(lane, wait === undefined ? undefined : now + wait, isFull, limits);
    }
    return claimed;
  }

  /** An attempt of a lane has ended. @returns whether there is something to claim now */
  ended(lane: string): boolean {
    const now = this.options.clock.now();
    if (this.lanes.get(lane)?.isFull === true) this.set(lane, now);
    return this.due(now).length > 0;
  }

  /** The next time after now to claim or search, in epoch milliseconds. */
  next(): number {
    const now = this.options.clock.now();
    let next = Math.max(this.nextSearch, now + 1);
    for (const { at } of this.lanes.values()) if (at > now && at < next) next = at;
    return next;
  }

  /** A lane that a search has found keeps its time, unless it has other limits than at the last claim. */
  private found(lane: string, at: number, limits?: string): void {
    const known = this.lanes.get(lane);
    if (known === undefined) this.lanes.set(lane, { at, limits });
    else if (limits !== undefined && known.limits !== limits) this.set(lane, at);
  }

  private request(now: number, most: number, freeSlots: () => FreeSlots) {
    const request: { lane: string; slots: number }[] = [];
    const due = this.due(now);
    if (due.length === 0) return request;
    const free = freeSlots();
    let left = most;
    for (const lane of due) {
      const slots = Math.min(free.lanes[lane] ?? free.elsewhere, left);
      if (slots <= 0) continue;
      request.push({ lane, slots });
      left -= slots;
      if (left <= 0 || request.length === LANES_AT_ONCE) break;
    }
    return request;
  }

  private set(lane: string, at: number): void {
    this.lanes.set(lane, { at });
  }

  /** A claim starts. */
  private ask(lane: string, now: number): void {
    const { limits, asked = 0 } = this.lanes.get(lane) ?? {};
    if (asked + 1 >= MOST_ASKED) this.lanes.delete(lane);
    else this.lanes.set(lane, { at: now + BUSY_WAIT, limits, asked: asked + 1 });
  }

  /** A claim has ended; what was set meanwhile stays. @param at - `undefined` if no delivery is due soon */
  private answer(lane: string, at: number | undefined, isFull: boolean, limits: string): void {
    const known = this.lanes.get(lane);
    if (known !== undefined && known.asked === undefined) return;
    if (at === undefined) this.lanes.delete(lane);
    else this.lanes.set(lane, { at, isFull, limits });
  }

  /** The lanes to claim from, the longest-waiting one first. */
  private due(now: number): string[] {
    const due = [...this.lanes].filter(([, { at }]) => at <= now);
    return due.sort(([, a], [, b]) => a.at - b.at).map(([lane]) => lane);
  }
}
