// What must hold at every step, whatever fails.
import { LEASE } from './applications.mjs';

/** Milliseconds that an extension may take to arrive. */
const EXTENSION_TRAVEL = 10;
/** Of a number of tokens. */
const EXACTNESS = 1e-3;

/** What happened to each event, compared with what the library says of it. */
export class Invariants {
  /** After how many attempts a delivery may die. */
  maxAttempts = Infinity;
  /** Whether a dead event blocks its key. */
  onDead = 'skip';
  /** `deliveries`, and `received` if events are acknowledged before they are handled. */
  tables;
  #events = new Map();
  #starts = new Map();

  constructor(simulation) {
    this.simulation = simulation;
  }

  /** @param event - `id`, `tenant`, `isTransactional`, `orderingKey`, `expiresIn` */
  add(event) {
    const known = {
      ...event,
      isAccepted: false,
      acknowledgements: 0,
      effects: 0,
      runs: [],
      // When it may expire: its `publish` may be repeated by another process, with another clock.
      ends: [],
      // The processes whose last request for it was a HEAD.
      heads: new Set(),
    };
    this.#events.set(event.id, known);
    return known;
  }

  eventOf(id) {
    return this.#events.get(id);
  }

  /** `publish` is called, perhaps again. */
  publishing(event, process) {
    event.ends.push(this.simulation.wallClock(process) + event.expiresIn);
    event.follows ??= [...this.#events.values()].filter((earlier) => earlier.isAccepted);
  }

  /** `publish` has resolved. */
  accepted(event) {
    event.isAccepted = true;
    const row = this.#rowOf('deliveries', event);
    this.#check(row, 'an accepted event is stored', () => event.id);
    this.#check(
      event.expiresIn === undefined || event.ends.includes(this.#endOf(event)),
      'an event expires when its publisher said',
      () => `${event.id} is stored with the end ${this.#endOf(event)}`,
    );
    for (const earlier of event.follows.filter((one) => isSameKey(one, event))) {
      this.#check(
        this.#rowOf('deliveries', earlier).sequence < row?.sequence,
        'the events of a key are sent in the order in which they were published',
        () => `${event.id} is numbered before ${earlier.id}, which was published before`,
      );
    }
  }

  /** A publisher makes a request. A POST that replaces a HEAD belongs to its attempt. */
  requested({ id, method }, process) {
    const event = this.eventOf(id);
    const startsAttempt = method === 'HEAD' || !event.heads.has(process);
    if (method === 'HEAD') event.heads.add(process);
    else event.heads.delete(process);
    const late = this.simulation.wallClock(process) - this.#endOf(event);
    this.#check(
      !startsAttempt || late < 0,
      'no attempt starts after an event has expired',
      () => `${process.label} sends ${id} ${late} ms after its end`,
    );
  }

  /** A publisher has emitted a delivery event. */
  reported({ eventId, reason, at }) {
    if (reason !== 'expired') return;
    const event = this.eventOf(eventId);
    const early = this.#endOf(event) - at;
    event.hasExpired = true;
    this.#check(
      early <= 0,
      'an event does not expire before its end',
      () => `${eventId} expires ${early} ms before its end`,
    );
  }

  /** An operator has skipped a dead event that blocks its key. */
  skipped({ event_id: id }) {
    this.eventOf(id).hasEnded = true;
  }

  /** A request leaves a publisher. */
  sent({ id, url }) {
    const event = this.eventOf(id);
    this.#check(
      new URL(url).searchParams.get('tenant') === event.tenant,
      'no tenant sees events of another',
      () => `${id} of ${event.tenant} is sent to ${url}`,
    );
    const { sequence } = this.#rowOf('deliveries', event);
    const others = [...this.#events.values()].filter((other) => isSameKey(other, event));
    for (const other of others) {
      const row = this.#rowOf('deliveries', other);
      this.#check(
        row === undefined || row.sequence >= sequence || other.hasEnded,
        'the events of a key are sent in the order in which they were published',
        () => `${id} is sent before ${other.id} has ended`,
      );
    }
  }

  /** A receiver has answered. */
  answered({ id }, status) {
    if (status >= 300) return;
    const event = this.eventOf(id);
    event.acknowledgements++;
    this.#check(
      this.tables.received === undefined ? event.effects > 0 : this.#rowOf('received', event),
      'a success means that the event is handled or stored',
      () => `${id} was answered ${status}`,
    );
  }

  handlerStarts(event, process) {
    const name = `${event.id} run ${event.runs.length + 1}`;
    const other = event.runs.find((run) => !run.hasEnded && run.process.alive);
    this.#check(
      // One that was stalled may have lost the lease before it starts the handler.
      other === undefined || [other.process, process].some((one) => one.wasTroubled(3 * LEASE)),
      'a lease has one owner',
      () => `${name} starts on ${process.label} while ${other.name} runs on ${other.process.label}`,
    );
    const run = { name, process, hasEnded: false };
    event.runs.push(run);
    this.simulation.note(process, `${name} starts`);
    return run;
  }

  /** The effect of a handler was committed. */
  effect(event) {
    event.effects++;
    this.simulation.note(undefined, `database: effect ${event.effects} of ${event.id}`);
    this.#check(
      !event.isTransactional || event.effects === 1,
      'an effect with event.commit(tx) happens once',
      () => `${event.id} has ${event.effects} effects`,
    );
  }

  /** A row of a table was claimed. @param limits - of its endpoint; `{}` for none */
  claimed(table, row, limits) {
    const { concurrency = Infinity, rateLimit } = limits;
    const now = this.simulation.wallClock(undefined);
    const leased = [...table.rows.values()].filter(
      ({ lane, status, leasedUntil, claim, overdueClaim }) =>
        lane === row.lane &&
        status === 'pending' &&
        leasedUntil > now &&
        // Another delivery may have started after a lease had expired, although it was extended later.
        claim !== overdueClaim,
    );
    const invariant = 'the limits of an endpoint hold for all processes together';
    this.#check(
      leased.length <= concurrency,
      invariant,
      () => `${leased.length} deliveries of ${row.lane} run at once`,
    );
    if (rateLimit === undefined) return;
    const starts = this.#startsOf(row);
    starts.push({ row, at: now });
    for (const [index, { at }] of starts.entries()) {
      const { perSecond, burst } = rateLimit;
      this.#check(
        starts.length - index <= burst + (perSecond * (now - at)) / 1_000 + EXACTNESS,
        invariant,
        () => `${starts.length - index} deliveries of ${row.lane} started within ${now - at} ms`,
      );
    }
  }

  /** The claim of a row was rolled back. */
  unclaimed(row) {
    const starts = this.#startsOf(row);
    const last = starts.findLastIndex((start) => start.row === row);
    if (last >= 0) starts.splice(last, 1);
  }

  /** The claims of a lane with a rate, in their order. */
  #startsOf({ lane }) {
    const starts = this.#starts.get(lane) ?? [];
    this.#starts.set(lane, starts);
    return starts;
  }

  /** A row was claimed whose last claim has no outcome. */
  leaseTaken({ event_id: id }, { leasedUntil, owner }) {
    this.#check(
      leasedUntil <= this.simulation.wallClock(undefined),
      'a lease has one owner',
      () => `${id} was claimed from ${owner.label} within its lease`,
    );
    const sinceEnd = this.simulation.wallClock(undefined) - leasedUntil;
    this.#check(
      // What has kept it from extending the lease began after the last extension.
      !owner.alive || owner.wasTroubled(sinceEnd + LEASE + EXTENSION_TRAVEL),
      'a live worker keeps its lease',
      () => `${id} was claimed from ${owner.label}, which runs without trouble`,
    );
  }

  /** An outcome was recorded. @param side - whose queue it is */
  settled(side, row, before, step, { claim, process, outcome }) {
    const event = this.eventOf(row.event_id);
    this.#check(
      claim === before.claim,
      'a lease has one owner that can record',
      () => `${process.label} recorded ${step} of ${event.id} by claim ${claim} of ${before.claim}`,
    );
    if (side === 'publisher' && row.status !== 'pending') {
      event.hasEnded ||= row.status === 'delivered' || this.onDead === 'skip';
    }
    this.#check(
      // A handler that throws runs again, whatever it would have decided.
      side !== 'publisher' || outcome.throws > 0 || !(outcome.due > this.#endOf(event)),
      'a delivery is due when it expires at the latest',
      () => `${event.id} is due ${outcome.due - this.#endOf(event)} ms after its end`,
    );
    this.#check(
      step !== 'expire' || (side === 'publisher' && event.hasExpired),
      'only an event that has expired is recorded as expired',
      () => event.id,
    );
    if (step === 'deliver') {
      const isTrue = side === 'publisher' ? event.acknowledgements > 0 : event.effects > 0;
      this.#check(
        isTrue,
        side === 'publisher' ? 'delivered means acknowledged' : 'handled means effect',
        () => `${event.id} is recorded as delivered`,
      );
    }
    this.#check(
      step !== 'die' || (side === 'publisher' && row.attempts === this.maxAttempts),
      'an accepted event is not dead while attempts are left',
      () => `${event.id} is dead after ${row.attempts} attempts: ${row.reason}`,
    );
  }

  areAllDone() {
    return [...this.#events.values()].every((event) => this.#isDone(event));
  }

  unfinished() {
    const open = [...this.#events.values()].filter((event) => !this.#isDone(event));
    return open.map(({ id, isAccepted }) => `${id} (accepted: ${isAccepted})`).join(', ');
  }

  atEnd() {
    for (const event of this.#events.values()) {
      const { id, effects, acknowledgements } = event;
      const isLate = this.#isExpired(event) && acknowledgements === 0;
      this.#check(effects > 0 || isLate, 'an accepted event is never lost', () => id);
    }
  }

  #isDone(event) {
    if (!event.isAccepted) return false;
    const isDelivered = this.#rowOf('deliveries', event)?.status === 'delivered';
    const received = this.tables.received && this.#rowOf('received', event);
    const isReceived = this.tables.received !== undefined && isDelivered;
    const isHandled = received === undefined ? !isReceived : received.status === 'delivered';
    return (isDelivered || this.#isExpired(event)) && isHandled;
  }

  #isExpired(event) {
    const row = this.#rowOf('deliveries', event);
    return row?.status === 'dead' && row.reason === 'expired';
  }

  /** When an event expires, as it is stored; `Infinity` if it does not. */
  #endOf(event) {
    return JSON.parse(this.#rowOf('deliveries', event)?.details ?? '{}').expiresAt ?? Infinity;
  }

  #rowOf(table, { id }) {
    return [...this.tables[table].rows.values()].find(({ event_id }) => event_id === id);
  }

  #check(holds, invariant, detail) {
    this.simulation.check(Boolean(holds), invariant, detail);
  }
}

function isSameKey(a, b) {
  return a.orderingKey !== undefined && a.orderingKey === b.orderingKey && a.tenant === b.tenant;
}
