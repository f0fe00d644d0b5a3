// One run on virtual time: a queue of events, and decisions that follow from a seed.
import { FAULT_KINDS } from './fault-kinds.mjs';

const EPOCH = Date.UTC(2026, 0, 1);
/** Virtual milliseconds after which no fault begins, so that everything must end. */
export const HORIZON = 90_000;
/** Virtual milliseconds within which everything must end. */
const LIMIT = 1_800_000;
const MAX_STEPS = 200_000;
/** Turns of the event loop after each step: some code of the library waits for one itself. */
const TURNS_TO_SETTLE = 2;

/** An invariant that does not hold. */
export class Violation extends Error {
  constructor(invariant, detail) {
    super(`${invariant}: ${detail}`);
    this.invariant = invariant;
  }
}

/**
 * A run. Every decision is a hash of the seed and the decision's name, so that removing one fault leaves all other
 * decisions as they were.
 */
export class Simulation {
  time = 0;
  /** Ids of the faults that happened. */
  faults = [];
  violation;
  /** Hash of the trace: two runs of a seed have the same. */
  digest = 0;
  steps = 0;
  #events = [];
  #sequence = 0;
  #trace = [];
  #kinds;

  /**
   * @param options.only - if set, the ids of the faults that may happen; shrinking removes the others
   * @param options.traced - whether to keep the lines of the trace
   */
  constructor(seed, { only, traced = false } = {}) {
    this.seed = seed;
    this.only = only;
    this.traced = traced;
    const used = Object.keys(FAULT_KINDS).filter((kind) => this.roll(`use ${kind}`) < 0.5);
    this.#kinds = new Set(used);
  }

  get trace() {
    return this.#trace;
  }

  /** A number in [0, 1) that follows from the seed and the name. */
  roll(name) {
    return mix(name, this.seed) / 2 ** 32;
  }

  /** A whole number from `low` up to `high`, without it. */
  between(name, low, high) {
    return Math.floor(low + this.roll(name) * (high - low));
  }

  /** Whether a fault of this kind happens at a point. */
  happens(kind, point) {
    const id = `${kind} @ ${point}`;
    if (this.time > HORIZON || !this.#kinds.has(kind)) return false;
    if (this.roll(id) >= FAULT_KINDS[kind]) return false;
    if (this.only !== undefined && !this.only.has(id)) return false;
    this.faults.push(id);
    this.note(undefined, `FAULT ${id}`);
    return true;
  }

  /** Adds a line to the trace. */
  note(process, text) {
    const line = `${String(this.time).padStart(7)} ms  ${(process?.label ?? '').padEnd(12)} ${text}`;
    this.digest = mix(line, this.digest);
    if (this.traced) this.#trace.push(line);
  }

  /** Ends the run unless the invariant holds. @param detail - returns what was seen */
  check(holds, invariant, detail) {
    if (holds || this.violation !== undefined) return;
    this.violation = new Violation(invariant, detail());
    this.note(undefined, `VIOLATION ${this.violation.message}`);
  }

  /** The time of a process whose clock may have jumped; without one, the time of a server. */
  wallClock(process) {
    return EPOCH + this.time + (process?.skew ?? 0);
  }

  /**
   * Runs something after some virtual milliseconds. It never happens if the process was killed, and later if it is stalled.
   *
   * @returns a function that cancels it
   */
  after(ms, process, run) {
    const event = {
      time: this.time + Math.max(0, Math.ceil(ms)),
      order: this.#sequence++,
      process,
      run,
    };
    insert(this.#events, event);
    return () => {
      event.run = undefined;
    };
  }

  /** Runs the world until it has ended, or an invariant does not hold. */
  async run(world) {
    while (this.#events.length > 0 && this.violation === undefined && !world.hasEnded()) {
      const event = takeFirst(this.#events);
      if (event.run === undefined || event.process?.alive === false) continue;
      this.time = Math.max(this.time, event.time);
      const { process } = event;
      if (process !== undefined && process.stalledUntil > this.time) {
        this.after(process.stalledUntil - this.time, process, event.run);
        continue;
      }
      // Starting an application reads files: real time passes, virtual time does not.
      await event.run();
      await settle();
      this.check(
        this.time <= LIMIT && ++this.steps <= MAX_STEPS,
        'everything ends',
        world.unfinished,
      );
    }
    this.check(world.hasEnded(), 'everything ends', world.unfinished);
    if (this.violation === undefined) world.atEnd();
  }
}

async function settle() {
  for (let turn = 0; turn < TURNS_TO_SETTLE; turn++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Hashes a name with a seed to 32 bits. */
export function mix(name, seed) {
  let hash = seed ^ 0x9e3779b9;
  for (let i = 0; i < name.length; i++) {
    hash = Math.imul(hash ^ name.charCodeAt(i), 0x5bd1e995) ^ (hash >>> 15);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

// A binary heap by time, then by order of insertion.
function isBefore(a, b) {
  return a.time < b.time || (a.time === b.time && a.order < b.order);
}

function insert(heap, event) {
  let at = heap.push(event) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!isBefore(heap[at], heap[parent])) return;
    [heap[at], heap[parent]] = [heap[parent], heap[at]];
    at = parent;
  }
}

function takeFirst(heap) {
  const [first] = heap;
  const last = heap.pop();
  if (heap.length === 0) return first;
  heap[0] = last;
  for (let at = 0; ;) {
    let child = 2 * at + 1;
    if (child >= heap.length) return first;
    if (child + 1 < heap.length && isBefore(heap[child + 1], heap[child])) child++;
    if (!isBefore(heap[child], heap[at])) return first;
    [heap[at], heap[child]] = [heap[child], heap[at]];
    at = child;
  }
}
