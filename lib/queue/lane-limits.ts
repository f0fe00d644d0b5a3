import { Pause } from '../clock/pause.js';
import type { DeliveryLimits } from './webhook-delivery.js';

/** Starts a second: one a day. A lower rate counts as this one, since its times would be too far away to calculate with. */
export const LEAST_RATE = 1 / 86_400;
/** After an overload, the rate starts at half of what it was, and at this part of the limit at least. */
export const LEAST_SHARE = 1 / 16;
/** Milliseconds in which the rate recovers from nothing to the limit. */
export const RECOVERY = 10 * 60_000;
/** Lanes of a durable queue whose limits a process remembers. */
const MAX_REMEMBERED = 10_000;
/** Milliseconds after which a process sets the limits of a durable queue again: another process may have replaced them. */
const REMEMBERED_FOR = 1_000;

/** The rate and the concurrency of one lane: a token bucket whose rate an overload lowers. */
class LaneLimit {
  /** {@link fullAt}, unless the clock was set back since. */
  private latestFullAt = -Infinity;
  /** Milliseconds of one token, since the last start. */
  private token: number;
  private lastStart = -Infinity;
  private pause = new Pause();
  /** The part of the rate that is left when the pause ends. */
  private share = 1;

  constructor(
    public limits: DeliveryLimits,
    public running: number,
  ) {
    this.token = this.tokenAt(0);
  }

  /** How many attempts may start now. */
  available(now: number): number {
    if (this.pause.until(now) > now) return 0;
    const { concurrency = Infinity, burst = Infinity } = this.limits;
    // Times are not exact in binary: a token that is due now counts.
    const tokens = Math.floor(burst - this.usedTokens(now) + 1e-6);
    return Math.min(concurrency - this.running, tokens);
  }

  /** When time alone lets another attempt start, in epoch milliseconds; `undefined` if one has to end first. */
  nextAt(now: number): number | undefined {
    const { concurrency = Infinity } = this.limits;
    return this.running >= concurrency ? undefined : this.tokenDue(now);
  }

  heldUntil(now: number): number {
    return Math.max(Math.min(this.lastStart, now), this.tokenDue(now));
  }

  start(now: number): void {
    this.running++;
    this.lastStart = now;
    if (this.limits.perSecond === undefined) return;
    const used = this.usedTokens(now) + 1;
    this.token = this.tokenAt(now);
    this.latestFullAt = now + used * this.token;
  }

  /** Pauses the lane, and halves its rate, unless it is paused already. */
  overloaded(until: number, now: number): void {
    if (this.pause.until(now) <= now) {
      this.share = Math.max(LEAST_SHARE, this.shareAt(now) / 2);
    }
    this.pause.extend(until, now);
  }

  /** Another `since` ends a pause and the slower rate of an overload; tokens that are used stay used. */
  change(limits: DeliveryLimits, now: number): void {
    const used = Math.max(0, this.fullAt(now) - now) / this.token;
    if (limits.since !== this.limits.since) {
      this.pause = new Pause();
      this.share = 1;
    }
    this.limits = limits;
    this.token = this.tokenAt(now);
    this.latestFullAt = now + used * this.token;
  }

  /** When there is a token, and no pause. */
  private tokenDue(now: number): number {
    const { burst = 1, perSecond } = this.limits;
    const pausedUntil = this.pause.until(now);
    if (perSecond === undefined) return pausedUntil;
    return Math.max(pausedUntil, this.fullAt(now) - (burst - 1) * this.token);
  }

  /** When the whole burst is available again. */
  private fullAt(now: number): number {
    const { burst = 1 } = this.limits;
    // A clock that is set back must not use more tokens than there are.
    this.latestFullAt = Math.min(this.latestFullAt, now + burst * this.token);
    return this.latestFullAt;
  }

  private usedTokens(now: number): number {
    const { burst = 1 } = this.limits;
    // A pause ends without a burst.
    const fullAt = Math.max(this.fullAt(now), this.pause.until(now) + (burst - 1) * this.token);
    return Math.max(0, fullAt - now) / this.token;
  }

  private tokenAt(now: number): number {
    const { perSecond } = this.limits;
    if (perSecond === undefined) return 1;
    return 1_000 / (Math.max(perSecond, LEAST_RATE) * this.shareAt(now));
  }

  private shareAt(now: number): number {
    return Math.min(1, this.share + Math.max(0, now - this.pause.until(now)) / RECOVERY);
  }
}

/** The limits of the lanes of a queue in memory. Times are passed in, as epoch milliseconds. */
export class LaneLimits {
  private readonly lanes = new Map<string, LaneLimit>();

  /**
   * @param running - attempts of the lane that run now
   * @returns whether they are other limits than before
   */
  set(lane: string, limits: DeliveryLimits, now: number, running: number): boolean {
    const known = this.lanes.get(lane);
    if (known === undefined) {
      if (isLimited(limits)) this.lanes.set(lane, new LaneLimit(limits, running));
      return false;
    }
    const isChanged = limitsKey(known.limits) !== limitsKey(limits);
    if (isChanged) known.change(limits, now);
    return isChanged;
  }

  /** Whether the lane has limits now; a pause can outlast them. */
  has(lane: string): boolean {
    return this.limitOf(lane) !== undefined;
  }

  available(lane: string, now: number): number {
    return this.lanes.get(lane)?.available(now) ?? Infinity;
  }

  /** When another attempt may start although none ends; `undefined` if one has to end first. */
  nextAt(lane: string, now: number): number | undefined {
    return this.lanes.get(lane)?.nextAt(now);
  }

  /** What waited before this time has waited for the limits of the lane: its last start, or when they allow the next one. */
  heldUntil(lane: string, now: number): number {
    return this.limitOf(lane)?.heldUntil(now) ?? -Infinity;
  }

  start(lane: string, now: number): void {
    this.lanes.get(lane)?.start(now);
  }

  end(lane: string): void {
    const limit = this.lanes.get(lane);
    if (limit !== undefined) limit.running--;
  }

  overloaded(lane: string, until: number, now: number): void {
    this.limitOf(lane)?.overloaded(until, now);
  }

  private limitOf(lane: string): LaneLimit | undefined {
    const limit = this.lanes.get(lane);
    return limit && isLimited(limit.limits) ? limit : undefined;
  }
}

/** The limits that this process has just set in a durable queue, so that a busy process does not set them with every delivery. */
export class RememberedLimits {
  private readonly lanes = new Map<string, { readonly key: string; readonly until: number }>();

  has(lane: string, limits: DeliveryLimits, now: number): boolean {
    const known = this.lanes.get(lane);
    return known !== undefined && known.until > now && known.key === limitsKey(limits);
  }

  add(lane: string, limits: DeliveryLimits, now: number): void {
    if (this.lanes.size > MAX_REMEMBERED) this.lanes.clear();
    this.lanes.set(lane, { key: limitsKey(limits), until: now + REMEMBERED_FOR });
  }
}

export function isLimited({ concurrency, perSecond }: DeliveryLimits): boolean {
  return concurrency !== undefined || perSecond !== undefined;
}

/** Equal for equal limits. */
export function limitsKey({ concurrency, perSecond, burst, since }: DeliveryLimits): string {
  return JSON.stringify([concurrency, perSecond, burst, since]);
}
