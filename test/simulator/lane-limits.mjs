// The table of limits as the statements of PostgresQueue see it. Each statement is one step.

/** Milliseconds in which a lowered rate recovers, and its least part. */
const RECOVERY = 600_000;
const LEAST_SHARE = 1 / 16;
/** The state of a lane that has not started anything. */
const INITIAL = { running: {}, fullAt: 0, token: undefined, pausedUntil: 0, share: 1, slowedAt: 0 };

export class LaneLimits {
  /** By lane. Rows are replaced and never changed, so that a rollback can put one back. */
  #rows = new Map();

  get hasAny() {
    return this.#rows.size > 0;
  }

  has(lane) {
    return this.#rows.has(lane);
  }

  /** As the statements return them. */
  of(lane) {
    const { concurrency, per_second: perSecond, burst, since } = this.#rows.get(lane);
    return { concurrency, perSecond, burst, since };
  }

  /** Those of some lanes that have other limits now. */
  changedBy(given) {
    return given.filter(({ lane, ...limits }) => {
      const known = this.#rows.get(lane);
      if (known === undefined) return (limits.concurrency ?? limits.per_second) !== undefined;
      return ['concurrency', 'per_second', 'burst', 'since'].some(
        (name) => known[name] !== limits[name],
      );
    });
  }

  set({ lane, concurrency, per_second, burst, since }, now) {
    const limits = { concurrency, per_second, burst, since };
    const known = this.#rows.get(lane);
    if (known === undefined) this.#rows.set(lane, { ...INITIAL, ...limits });
    else this.#rows.set(lane, this.change(known, limits, now));
  }

  /** Another `since` ends a pause and the slower rate of an overload; tokens that are used stay used. */
  change(known, limits, now) {
    const row = { ...known, ...limits };
    if (known.since !== limits.since) Object.assign(row, { pausedUntil: 0, share: 1 });
    const token = tokenOf(row, now);
    const used = Math.max(0, known.fullAt - now) / (known.token ?? tokenOf(known, now));
    return { ...row, token, fullAt: Number.isFinite(used * token) ? now + used * token : 0 };
  }

  /** How many may start in a lane, by its claims that have not ended. */
  levelOf(lane, slots, now, hasStarted) {
    const row = this.#rows.get(lane);
    const running = Object.fromEntries(Object.entries(row.running).filter(hasStarted));
    const used = Object.keys(running).length;
    const token = row.token ?? tokenOf(row, now);
    const fullAt = Math.max(row.fullAt, row.pausedUntil + (row.burst - 1) * token);
    const usedTokens = token === undefined ? 0 : Math.max(0, fullAt - now) / token;
    const { concurrency = Infinity, burst = Infinity } = row;
    const tokens = Math.floor(burst - usedTokens + 1e-6);
    const free = Math.max(0, Math.min(slots, concurrency - used, tokens));
    return { running, used, usedTokens, free: row.pausedUntil > now ? 0 : free };
  }

  /** Counts claims. @returns a function that undoes it */
  start(lane, { running, usedTokens }, claims, now, until) {
    const row = this.#rows.get(lane);
    const token = tokenOf(row, now);
    const started = Object.fromEntries(claims.map((claim) => [claim, until]));
    this.#rows.set(lane, {
      ...row,
      token,
      fullAt:
        row.per_second === undefined ? row.fullAt : now + (usedTokens + claims.length) * token,
      running: row.concurrency === undefined ? {} : { ...running, ...started },
    });
    return () => this.#rows.set(lane, row);
  }

  /** A lane after a claim, as the statement returns it. `taken`: how many were claimed, of `slots`; `dueIn`: until the next one is due. */
  stateOf(lane, { used, usedTokens, free }, { now, taken, slots, dueIn, lookAhead }) {
    const row = this.#rows.get(lane);
    const { concurrency, per_second: perSecond, burst, pausedUntil } = row;
    const hasNoSlot = used + taken >= (concurrency ?? Infinity);
    const token = row.token ?? tokenOf(row, now);
    const waits = [
      [pausedUntil > now, pausedUntil - now],
      [taken < free, dueIn ?? null],
      [hasNoSlot, lookAhead],
      [perSecond === undefined, 0],
      [true, Math.max(0, (usedTokens + taken - burst + 1) * token)],
    ];
    const [, wait] = waits.find(([applies]) => applies);
    // In SQL, a comparison with an absent limit is not known to be false.
    const isFull = hasNoSlot || taken >= slots || (concurrency === undefined ? null : false);
    return { lane, wait, isFull, ...this.of(lane) };
  }

  /** Forgets claims that have ended. @param pause - milliseconds that their receiver is overloaded, if it is */
  end(lane, slots, pause, now) {
    const row = this.#rows.get(lane);
    const running = Object.fromEntries(
      Object.entries(row.running).filter(([slot]) => !slots.includes(slot)),
    );
    this.#rows.set(lane, { ...row, running, ...(pause !== undefined && slowed(row, pause, now)) });
  }
}

/** What an overload changes: the rate is halved, unless the lane is paused already. */
function slowed(row, pause, now) {
  const isPaused = row.pausedUntil > now;
  const share = isPaused ? row.share : Math.max(LEAST_SHARE, shareAt(row, now) / 2);
  const pausedUntil = Math.max(row.pausedUntil, now + pause);
  return { share, pausedUntil, slowedAt: pausedUntil };
}

/** Milliseconds of a token. */
function tokenOf(row, now) {
  return row.per_second === undefined ? undefined : 1_000 / (row.per_second * shareAt(row, now));
}

function shareAt({ share, slowedAt }, now) {
  return Math.min(1, share + Math.max(0, now - slowedAt) / RECOVERY);
}
