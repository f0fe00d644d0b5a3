// The table of deliveries as the statements of PostgresQueue see it. Only committed state: each statement is one step.

import { LaneLimits } from './lane-limits.mjs';

/** Differences of clocks that the statements do not correct, in milliseconds. */
const AGREEMENT = 1_000;
/** `lock_timeout` of a statement that fails instead of waiting for another transaction. */
const SHORT_WAIT = '1s';

/** The conditions of a list. */
const EQUALS = /(\w+) = \$(\d+)::text/g;
const HAS_STATUS = /status = '(\w+)'/;

export class DeliveryTable {
  rows = new Map();
  /** Number of the last claim of each row, with the process that holds it. */
  owners = new Map();
  limits = new LaneLimits();

  /** @param observer - `recorded`, `claimed`, `unclaimed`, `settled`, `redelivered`, `skipped`: each is called with the row after the change */
  #lastSeq = 0;
  /** The transactions that claim from a limited lane, by lane. */
  #gates = new Map();
  /** By key: resolves when the transaction that locks it ends. */
  #locks = new Map();
  /** By id of a delivery: the last transaction that has recorded it. */
  #recording = new Map();

  constructor(simulation, name, observer) {
    this.simulation = simulation;
    this.name = name;
    this.observer = observer;
  }

  get now() {
    return this.simulation.wallClock(undefined);
  }

  async record([queue, deliveries, , ownTime, lockTimeout, , , payloads]) {
    await this.#recorded(deliveries, lockTimeout);
    return withPayloads(deliveries, payloads).map((given) => {
      const known = this.#byId(given.id);
      if (known !== undefined) return { given_id: given.id, fresh: false, ...columnsOf(known) };
      const row = this.insert({ ...given, queue, due: given.due + this.#skew(ownTime) });
      const { seq: recorded_seq, held: recorded_held } = row;
      const limited_lane = row.limited ? row.lane : null;
      return {
        given_id: given.id,
        fresh: true,
        id: null,
        recorded_seq,
        recorded_held,
        limited_lane,
      };
    });
  }

  /** Locks the keys of deliveries until the transaction ends. */
  async lockKeys([, deliveries], _text, _process, transaction) {
    for (const key of keysOf(deliveries)) {
      while (this.#locks.has(key)) await this.#locks.get(key);
      if (transaction.state !== 'open') throw new Error('the connection was closed');
      this.#locks.set(key, transaction.ended);
      transaction.onEnd(() => this.#locks.delete(key));
    }
    return [];
  }

  /** As `recordLocked`, without a transaction. It fails while another one has locked a key. */
  async recordKeyed([queue, deliveries, , ownTime, lockTimeout, , , payloads]) {
    await this.#recorded(deliveries, lockTimeout);
    if (keysOf(deliveries).some((key) => this.#locks.has(key))) throw lockTimeoutError();
    const given = withPayloads(deliveries, payloads);
    const { rows, fresh } = this.#numbered(queue, given, ownTime);
    for (const row of fresh) this.insert(row);
    return rows;
  }

  /** As `record`; the rows are seen once the transaction commits. */
  async recordLocked(values, _text, _process, transaction) {
    const [queue, deliveries, , ownTime, lockTimeout, , , payloads] = values;
    await this.#recorded(deliveries, lockTimeout);
    const given = withPayloads(deliveries, payloads);
    const { rows, fresh } = this.#numbered(queue, given, ownTime);
    for (const { id } of fresh) this.#recording.set(id, transaction);
    transaction.onCommit(() => fresh.forEach((row) => this.insert(row)));
    return rows;
  }

  /** The answer to a statement that records deliveries with keys, and the rows that it inserts. */
  #numbered(queue, deliveries, ownTime) {
    const fresh = [];
    const rows = deliveries.map((given) => {
      const known = this.#byId(given.id);
      if (known !== undefined) return { given_id: given.id, fresh: false, ...columnsOf(known) };
      const row = { ...given, queue, seq: String(++this.#lastSeq) };
      row.due += this.#skew(ownTime);
      if (takesTurn(given)) {
        const sameKey = [...this.rows.values(), ...fresh].filter(
          (one) => keyOf(one) === keyOf(row),
        );
        row.sequence = 1 + Math.max(0, ...sameKey.map(({ sequence }) => sequence));
        row.holds_key = true;
        row.held = sameKey.some(({ holds_key }) => holds_key);
      }
      fresh.push(row);
      const { seq: recorded_seq, held: recorded_held } = row;
      const limited_lane = this.limits.has(row.lane) ? row.lane : null;
      return {
        given_id: given.id,
        fresh: true,
        id: null,
        recorded_seq,
        recorded_held,
        limited_lane,
      };
    });
    return { rows, fresh };
  }

  /** Waits for the transactions that have recorded the same ids, or are changing them. */
  async #recorded(deliveries, lockTimeout) {
    for (const { id } of JSON.parse(deliveries)) {
      const lock = () =>
        isLocked(this.#byId(id) ?? {}) ? this.#byId(id).lock : this.#recording.get(id);
      while (isLocked({ lock: lock() })) {
        if (lockTimeout === SHORT_WAIT) throw lockTimeoutError();
        await lock().ended;
      }
    }
  }

  insert({ payload, ...columns }) {
    const row = {
      sequence: null,
      holds_key: false,
      held: false,
      limited: this.limits.has(columns.lane),
      ...columns,
      seq: columns.seq ?? String(++this.#lastSeq),
      updated: columns.created,
      payload: payload === null ? null : Buffer.from(payload, 'base64'),
      status: 'pending',
      reason: null,
      attempts: 0,
      throws: 0,
      claim: 0,
      leasedUntil: -Infinity,
    };
    this.rows.set(row.seq, row);
    this.observer.recorded(row);
    return row;
  }

  claim([, , lease, limit, lanesJson, perLane, lookAhead, ...more], text, process, transaction) {
    const lanes = JSON.parse(lanesJson);
    const slotsOf = (lane) => lanes[lane] ?? perLane;
    const lane = text.includes('lane = $8') ? more[0] : undefined;
    const since = text.includes('due_at >= ') ? this.now - more.at(-1) : -Infinity;
    const due = [...this.rows.values()]
      .filter((row) => (lane !== undefined || !row.limited) && this.isClaimable(row))
      .filter((row) => slotsOf(row.lane) > 0 && row.due >= since)
      .filter((row) => lane === undefined || row.lane === lane)
      .sort(byDue)
      .slice(0, limit);
    for (const row of due) row.lock = transaction;
    const checksLimits = text.includes('limited_lanes');
    const found = due.filter((row) => checksLimits && this.limits.has(row.lane));
    setLimited(found, transaction);
    const lanesFound = [...new Set(found.map((row) => row.lane))];
    const limited_lanes = lanesFound.length === 0 ? null : JSON.stringify(lanesFound);
    const taken = {};
    const chosen = due.filter((row) => {
      if (found.includes(row)) return false;
      taken[row.lane] = (taken[row.lane] ?? 0) + 1;
      return taken[row.lane] <= slotsOf(row.lane);
    });
    for (const row of chosen) this.#lease(row, lease, process, transaction);
    if (chosen.length > 0) {
      return chosen.map((row) => ({
        ...columnsOf(row),
        due_in: row.due - this.now,
        limited_lanes,
      }));
    }
    const later = [...this.rows.values()]
      .filter((row) => isWaiting(row) && !row.limited && row.due > this.now)
      .map((row) => row.due - this.now)
      .filter((wait) => wait <= lookAhead);
    return [{ seq: null, due_in: later.length === 0 ? null : Math.min(...later), limited_lanes }];
  }

  async setLimits([, rows]) {
    const changed = this.limits.changedBy(JSON.parse(rows));
    await this.#unlockedGates(changed);
    for (const limits of changed) this.limits.set(limits, this.now);
    return changed.map(({ lane }) => ({ lane }));
  }

  /** A claim holds the rows of its lanes until its transaction ends. */
  async #unlockedGates(lanes) {
    for (const { lane } of lanes) {
      while (this.#gates.has(lane)) await this.#gates.get(lane).ended;
    }
  }

  /** As `claim`, for lanes with limits. */
  claimLimited([, , lease, lanesJson, lookAhead, grace], _text, process, transaction) {
    const claimed = [];
    const { now } = this;
    const lanes = JSON.parse(lanesJson)
      .filter(({ lane }) => this.limits.has(lane) && !this.#gates.has(lane))
      .map(({ lane, slots }) => {
        this.#gates.set(lane, transaction);
        transaction.onEnd(() => this.#gates.delete(lane));
        const level = this.limits.levelOf(lane, slots, now, (slot) =>
          this.hasStarted(slot, process),
        );
        const ofLane = [...this.rows.values()].filter((row) => row.lane === lane).sort(byDue);
        const chosen = ofLane.filter((row) => this.isClaimable(row)).slice(0, level.free);
        for (const row of chosen) this.#lease(row, lease, process, transaction);
        if (chosen.length > 0) {
          const claims = chosen.map(({ seq, claim }) => `${seq}:${claim}`);
          transaction.onRollBack(this.limits.start(lane, level, claims, now, now + grace));
        }
        claimed.push(...chosen);
        const waits = ofLane.filter(isWaiting).map(({ due }) => due - now);
        const dueIn = waits.find((wait) => wait > 0 && wait <= lookAhead);
        const taken = chosen.length;
        return this.limits.stateOf(lane, level, { now, taken, slots, dueIn, lookAhead });
      });
    const state = { lanes: lanes.length === 0 ? null : JSON.stringify(lanes) };
    if (claimed.length === 0) return [{ seq: null, ...state }];
    return claimed.map((row) => ({ ...columnsOf(row), ...state }));
  }

  /** Whether a claim counts. One that began within the time of a statement counts without a look at its lease. */
  hasStarted([slot, until]) {
    return until > this.now || this.isRunning(slot);
  }

  isRunning(slot) {
    const [seq, claim] = slot.split(':');
    const row = this.rows.get(seq);
    return row.claim === Number(claim) && row.status === 'pending' && row.leasedUntil > this.now;
  }

  async endLimited([, ended, , ownTime]) {
    const all = JSON.parse(ended);
    await this.#unlockedGates(all);
    for (const lane of new Set(all.map((run) => run.lane))) {
      const runs = all.filter((run) => run.lane === lane);
      const overloaded = Math.max(...runs.map((run) => run.overloaded ?? -Infinity));
      const pause = overloaded === -Infinity ? undefined : overloaded - ownTime;
      const slots = runs.map(({ slot }) => slot);
      this.limits.end(lane, slots, pause, this.now);
    }
    return [];
  }

  flag([, lane], _text, _process, transaction) {
    const rows = [...this.rows.values()].filter(
      (row) => row.lane === lane && isWaiting(row) && !row.limited && !isLocked(row),
    );
    for (const row of rows) row.lock = transaction;
    setLimited(rows, transaction);
    return rows.map(({ seq }) => ({ seq }));
  }

  findLimitedLanes([, , lookAhead]) {
    const rows = [...this.rows.values()].filter(isWaiting);
    const has_limits = this.limits.hasAny;
    const limited = rows.filter((row) => row.limited);
    const found = [...new Set(limited.map(({ lane }) => lane))]
      .map((lane) => {
        const due = Math.min(...rows.filter((row) => row.lane === lane).map((row) => row.due));
        const limits = JSON.stringify(this.limits.of(lane));
        return { has_limits, lane, wait: Math.max(0, due - this.now), limits };
      })
      .filter(({ wait }) => wait <= lookAhead);
    return found.length > 0 ? found : [{ has_limits, lane: null }];
  }

  isClaimable(row) {
    const isDue = isWaiting(row) && row.due <= this.now && row.leasedUntil <= this.now;
    return isDue && !isLocked(row) && this.hasItsTurn(row);
  }

  /** Whether no earlier delivery holds its key. */
  hasItsTurn(row) {
    return !row.holds_key || this.#firstOfKey(keyOf(row)) === row;
  }

  #firstOfKey(key) {
    return [...this.rows.values()]
      .filter((row) => row.holds_key && keyOf(row) === key)
      .sort((a, b) => a.sequence - b.sequence)[0];
  }

  #lease(row, lease, process, transaction) {
    const owner = this.owners.get(row.seq);
    const before = { ...row, owner };
    row.claim++;
    // The process of a received event died in its run, which counts.
    if ((row.receiver ?? null) !== null && row.leasedUntil > -Infinity) row.attempts++;
    row.leasedUntil = this.now + lease;
    this.owners.set(row.seq, process);
    row.lock = transaction;
    this.observer.claimed(row, before, process);
    transaction.onRollBack(() => {
      const { claim, leasedUntil, attempts } = before;
      Object.assign(row, { claim, leasedUntil, attempts });
      this.owners.set(row.seq, owner);
      this.observer.unclaimed(row);
    });
  }

  async settle([outcomes, , ownTime], _text, process) {
    await unlocked(JSON.parse(outcomes).map(({ seq }) => this.rows.get(seq)));
    const skew = this.#skew(ownTime);
    for (const { seq, claim, due, ...outcome } of JSON.parse(outcomes)) {
      const row = this.rows.get(seq);
      if (!this.isHeld(row, claim)) {
        this.observer.refused(row, process);
        continue;
      }
      const before = { ...row };
      row.status = outcome.status;
      row.holds_key &&= outcome.status === 'pending' || outcome.blocks_key === true;
      row.attempts = outcome.attempts;
      row.throws = outcome.throws;
      row.reason = outcome.status === 'delivered' ? null : (outcome.reason ?? row.reason);
      row.due = due === undefined ? row.due : due + skew;
      row.updated = this.now;
      row.leasedUntil = -Infinity;
      this.observer.settled(row, before, { ...outcome, due }, { claim, process });
    }
    return JSON.parse(outcomes)
      .filter(({ seq, releases }) => releases && !this.#isLastOfKey(this.rows.get(seq)))
      .map(({ seq }) => ({ seq }));
  }

  /** Whether no later delivery of the key was recorded, or is being recorded. */
  #isLastOfKey(row) {
    const key = keyOf(row);
    if (this.#locks.has(key)) return false;
    const numbers = [...this.rows.values()].filter((one) => keyOf(one) === key);
    return numbers.every(({ sequence }) => sequence <= row.sequence);
  }

  /** Whether a worker still holds its claim. */
  isHeld(row, claim) {
    return row.claim === claim && row.status === 'pending' && row.leasedUntil > -Infinity;
  }

  extend([held, , lease]) {
    for (const { seq, claim } of JSON.parse(held)) {
      const row = this.rows.get(seq);
      if (!this.isHeld(row, claim) || isLocked(row)) continue;
      if (row.leasedUntil <= this.now) row.overdueClaim = claim;
      row.leasedUntil = this.now + lease;
    }
    return [];
  }

  find([, ids]) {
    return JSON.parse(ids)
      .map((id) => this.#byId(id))
      .filter((row) => row !== undefined)
      .map(columnsOf);
  }

  list(values, text) {
    const equal = [...text.matchAll(EQUALS)].map(([, column, at]) => [column, values[at - 1]]);
    const status = HAS_STATUS.exec(text)?.[1];
    return [...this.rows.values()]
      .filter((row) => equal.every(([column, value]) => row[column] === value))
      .filter((row) => status === undefined || row.status === status)
      .map(columnsOf);
  }

  async redeliver([, ids]) {
    const rows = JSON.parse(ids).map((id) => this.#byId(id));
    await unlocked(rows);
    const chosen = rows.filter((row) => row !== undefined && this.#isRedeliverable(row));
    for (const row of chosen) {
      const before = { ...row };
      if (row.status === 'dead') Object.assign(row, { attempts: 0, reason: null });
      Object.assign(row, { status: 'pending', due: this.now, updated: this.now, throws: 0 });
      row.claim++;
      this.observer.redelivered(row, before);
    }
    return chosen.map(({ id }) => ({ id }));
  }

  #isRedeliverable({ status, due, leasedUntil }) {
    return status === 'dead' || (status === 'pending' && due > this.now && leasedUntil <= this.now);
  }

  skip([, ids]) {
    const rows = JSON.parse(ids).map((id) => this.#byId(id));
    const blocking = rows.filter((row) => row?.status === 'dead' && row.holds_key);
    for (const row of blocking) {
      row.holds_key = false;
      this.observer.skipped(row);
    }
    return blocking.map(({ id, seq }) => ({ id, seq }));
  }

  releaseNext([, seqs]) {
    return this.#release(JSON.parse(seqs).map((seq) => this.rows.get(seq)));
  }

  releaseAll() {
    return this.#release([...this.rows.values()].filter(({ holds_key }) => holds_key));
  }

  #release(rows) {
    const next = [...new Set(rows.map(keyOf))].map((key) => this.#firstOfKey(key));
    const released = next.filter((row) => row?.held);
    for (const row of released)
      Object.assign(row, { held: false, due: Math.max(row.due, this.now) });
    return released.map(({ seq }) => ({ seq }));
  }

  findDueLanes([, lanes]) {
    return JSON.parse(lanes)
      .filter((lane) =>
        [...this.rows.values()].some((row) => row.lane === lane && this.isClaimable(row)),
      )
      .map((lane) => ({ lane }));
  }

  #byId(id) {
    return [...this.rows.values()].find((row) => row.id === id);
  }

  /** As the statements correct the time of a process to that of the server. */
  #skew(ownTime) {
    const ahead = this.now - ownTime;
    return Math.abs(ahead) < AGREEMENT ? 0 : ahead;
  }
}

function lockTimeoutError() {
  return Object.assign(new Error('lock timeout'), { code: '55P03' });
}

/** Whether a delivery is due, or waits for its time; and not for its key. */
function isWaiting({ status, held }) {
  return status === 'pending' && !held;
}

/** Marks rows as of a limited lane once the transaction commits. */
function setLimited(rows, transaction) {
  for (const row of rows) transaction.onCommit(() => void (row.limited = true));
}

/** Whether an open transaction has locked a row. */
function isLocked({ lock }) {
  return lock?.state === 'open';
}

/** Waits for the transactions that have locked rows. */
async function unlocked(rows) {
  let locked;
  while ((locked = rows.find((row) => row !== undefined && isLocked(row)))) await locked.lock.ended;
}

/** Whether a delivery waits for the earlier ones of its key. */
function takesTurn({ ordering_key, sequence }) {
  return ordering_key !== undefined && sequence === undefined;
}

/** Rows of `record`, each with its payload. */
export function withPayloads(deliveries, payloads) {
  const list = JSON.parse(payloads);
  return JSON.parse(deliveries).map((row) => ({ ...row, payload: list[row.payload - 1] }));
}

/** The keys that deliveries are numbered by, in their order. */
function keysOf(deliveries) {
  const keys = JSON.parse(deliveries).filter(takesTurn).map(keyOf);
  return [...new Set(keys)].sort(byText);
}

function keyOf({ lane, ordering_key }) {
  return ordering_key && `${lane} ${ordering_key}`;
}

function columnsOf(row) {
  const {
    event_id,
    endpoint_id,
    tenant,
    subject,
    receiver,
    ordering_key,
    limited,
    lock: _lock,
    ...rest
  } = row;
  return {
    limited: limited && row.leasedUntil === -Infinity,
    event_id: event_id ?? null,
    endpoint_id: endpoint_id ?? null,
    tenant: tenant ?? null,
    subject: subject ?? null,
    payload_dropped: false,
    receiver: receiver ?? null,
    ordering_key: ordering_key ?? null,
    ...rest,
  };
}

function byDue(a, b) {
  return a.due - b.due || Number(a.seq) - Number(b.seq);
}

function byText(a, b) {
  return a < b ? -1 : 1;
}
