// The limits of lanes as the statements of PostgresQueue see them. Each statement is one step.

/** Milliseconds in which a lowered rate recovers, and its least part. */
const RECOVERY = 600_000;
const LEAST_SHARE = 1 / 16;

export class LaneLimits {
  #lanes = new Map();

  get hasAny() {
    return this.#lanes.size > 0;
  }

  has(lane) {
    return this.#lanes.has(lane);
  }

  concurrencyOf(lane) {
    return this.#lanes.get(lane)?.concurrency ?? Infinity;
  }

  /** @returns the lanes whose limits are other ones than before */
  set(rows) {
    return rows.filter(({ lane, concurrency, per_second, burst, since }) => {
      const known = this.#lanes.get(lane);
      if (known === undefined && concurrency === undefined && per_second === undefined)
        return false;
      const limits = { concurrency, per_second, burst, since };
      const isSame = known && Object.keys(limits).every((name) => known[name] === limits[name]);
      const keeps = known !== undefined && known.since === since;
      const rest = { fullAt: 0, pausedUntil: 0, share: 1, slowedAt: 0 };
      const running = known?.running ?? new Map();
      this.#lanes.set(lane, { ...(keeps ? known : rest), ...limits, running, token: undefined });
      return !isSame;
    });
  }

  /** How many may start in a lane, by its claims that have not ended. */
  free(lane, slots, now, isRunning) {
    const limit = this.#lanes.get(lane);
    const { running, concurrency = Infinity, burst = Infinity } = limit;
    for (const [slot, until] of running) {
      if (until <= now && !isRunning(slot)) running.delete(slot);
    }
    if (limit.pausedUntil > now) return 0;
    const used = Math.max(0, limit.fullAt - now) / this.#token(limit, now);
    return Math.max(
      0,
      Math.min(slots, concurrency - running.size, Math.floor(burst - used + 1e-6)),
    );
  }

  /** Counts a claim, without a look at its lease until a time. */
  start(lane, slot, now, until) {
    const limit = this.#lanes.get(lane);
    if (limit.concurrency !== undefined) limit.running.set(slot, until);
    if (limit.per_second === undefined) return;
    const used = this.#used(limit, now) + 1;
    limit.token = this.#token(limit, now);
    limit.fullAt = now + used * limit.token;
  }

  /** Forgets a claim whose transaction was rolled back; its token stays used. */
  release(lane, slot) {
    this.#lanes.get(lane).running.delete(slot);
  }

  /** A lane after a claim, as the statement returns it. */
  stateOf(lane, { now, isLast, dueIn, lookAhead }) {
    const limit = this.#lanes.get(lane);
    const { concurrency, per_second: perSecond, burst, since, running } = limit;
    const isFull = running.size >= (concurrency ?? Infinity);
    const waitForToken =
      limit.fullAt - (burst - 1) * (limit.token ?? this.#token(limit, now)) - now;
    const waits = [
      [limit.pausedUntil > now, limit.pausedUntil - now],
      [isLast, dueIn ?? null],
      [isFull, lookAhead],
      [true, perSecond === undefined ? 0 : Math.max(0, waitForToken)],
    ];
    const [, wait] = waits.find(([applies]) => applies);
    const limits = { concurrency, perSecond, burst, since };
    return { lane, wait, isFull, ...limits };
  }

  end({ lane, slot, overloaded }, now, ownTime) {
    const limit = this.#lanes.get(lane);
    limit.running.delete(slot);
    if (overloaded === undefined) return;
    if (limit.pausedUntil <= now) {
      limit.share = Math.max(LEAST_SHARE, this.#shareAt(limit, now) / 2);
    }
    limit.pausedUntil = Math.max(limit.pausedUntil, now + overloaded - ownTime);
    limit.slowedAt = limit.pausedUntil;
    const { per_second, burst, pausedUntil } = limit;
    if (per_second === undefined) return;
    limit.token = this.#token(limit, pausedUntil);
    limit.fullAt = pausedUntil + (burst - 1) * limit.token;
  }

  #used(limit, now) {
    return Math.max(0, limit.fullAt - now) / (limit.token ?? this.#token(limit, now));
  }

  #token(limit, now) {
    return limit.per_second === undefined
      ? 1
      : 1_000 / (limit.per_second * this.#shareAt(limit, now));
  }

  #shareAt({ share, slowedAt }, now) {
    return Math.min(1, share + Math.max(0, now - slowedAt) / RECOVERY);
  }
}
