import { setImmediate as turn } from 'node:timers/promises';
import { type Due, DueHeap } from '../../queue/due-heap.js';
import type { SimulatedProcess } from './simulated-process.js';

const EPOCH = Date.UTC(2026, 0, 1);
/** Virtual milliseconds after which no fault begins, so that everything must end. */
export const HORIZON = 90_000;
const MAX_STEPS = 200_000;

/** Kinds of faults, each with the share of its points at which it happens in a run that uses it. A run uses half of them. */
const FAULT_KINDS = {
  // The network between publishers and receivers
  delay: 0.1,
  loss: 0.06,
  reset: 0.08,
  'lost answer': 0.08,
  duplicate: 0.2,
  partition: 0.3,
  // Stores and their servers
  'store error': 0.03,
  'store reply lost': 0.03,
  'store slow': 0.03,
  'store outage': 0.3,
  // Processes
  kill: 0.015,
  stall: 0.015,
  'clock jump': 0.01,
  // The application
  'handler fails': 0.15,
  'handler is slow': 0.25,
} as const;

type FaultKind = keyof typeof FAULT_KINDS;

/** An invariant that does not hold. */
export class Violation extends Error {
  constructor(
    readonly invariant: string,
    detail: string,
    options?: ErrorOptions,
  ) {
    super(`${invariant}: ${detail}`, options);
  }
}

export interface SimulatedWorld {
  hasEnded(): boolean;
  unfinished(steps?: number): string;
  /** Called once it has ended. */
  atEnd(): void | Promise<void>;
}

export interface SimulationSettings {
  /** If set, the ids of the faults that may happen; shrinking removes the others. */
  readonly only?: ReadonlySet<string> | undefined;
  /** Whether to keep the lines of the trace. */
  readonly traced?: boolean | undefined;
  /** Turns of the event loop after each step, for code that waits for some. */
  readonly turns?: number | undefined;
  /** Virtual milliseconds within which everything must end. */
  readonly limit?: number | undefined;
}

interface SimulatedEvent extends Due {
  readonly process: SimulatedProcess | undefined;
  run: (() => void | Promise<void>) | undefined;
}

/**
 * A run on virtual time: a queue of events, and decisions that follow from a seed. Every decision is a hash of the seed and the
 * decision's name, so that removing one fault leaves all other decisions as they were.
 */
export class Simulation {
  time = 0;
  readonly faults: string[] = [];
  readonly trace: string[] = [];
  violation: Violation | undefined;
  /** Hash of the trace: two runs of a seed have the same. */
  digest = 0;
  steps = 0;
  /** By server: the time for which it is unavailable. */
  outages = new Map<string, Span | undefined>();
  private readonly events = new DueHeap<SimulatedEvent>();
  private sequence = 0;
  private readonly kinds: ReadonlySet<FaultKind>;

  constructor(
    readonly seed: number,
    private readonly settings: SimulationSettings = {},
  ) {
    const kinds = Object.keys(FAULT_KINDS) as FaultKind[];
    this.kinds = new Set(kinds.filter((kind) => this.roll(`use ${kind}`) < 0.5));
  }

  /** @returns a number in [0, 1) that follows from the seed and the name */
  roll(name: string): number {
    return mix(name, this.seed) / 2 ** 32;
  }

  /** @returns a whole number from `low` up to `high`, without it */
  between(name: string, low: number, high: number): number {
    return Math.floor(low + this.roll(name) * (high - low));
  }

  /** @returns one of several, which follows from the seed and the name */
  pick<Item>(name: string, items: readonly Item[]): Item {
    return items[mix(name, this.seed) % items.length]!;
  }

  happens(kind: FaultKind, point: string): boolean {
    const id = `${kind} @ ${point}`;
    if (this.time > HORIZON || !this.kinds.has(kind)) return false;
    if (this.roll(id) >= FAULT_KINDS[kind]) return false;
    if (this.settings.only?.has(id) === false) return false;
    this.faults.push(id);
    this.note(undefined, `FAULT ${id}`);
    return true;
  }

  /** Adds a line to the trace. */
  note(process: SimulatedProcess | undefined, text: string): void {
    const line = `${String(this.time).padStart(7)} ms  ${(process?.label ?? '').padEnd(12)} ${text}`;
    this.digest = mix(line, this.digest);
    if (this.settings.traced === true) this.trace.push(line);
  }

  /** Ends the run unless the invariant holds. @param detail - returns what was seen */
  check(holds: boolean, invariant: string, detail: () => string): void {
    if (!holds) this.fail(new Violation(invariant, detail()));
  }

  fail(violation: Violation): void {
    if (this.violation !== undefined) return;
    this.violation = violation;
    this.note(undefined, `VIOLATION ${violation.message}`);
  }

  /** The time of a process whose clock may have jumped; without one, the time of a server. */
  wallClock(process: SimulatedProcess | undefined): number {
    return EPOCH + this.time + (process?.skew ?? 0);
  }

  /**
   * Runs something after some virtual milliseconds. It never happens if the process was killed, and later if it is stalled.
   *
   * @returns a function that cancels it
   */
  after(
    ms: number,
    process: SimulatedProcess | undefined,
    run: () => void | Promise<void>,
  ): () => void {
    const due = this.time + Math.max(0, Math.ceil(ms));
    const event: SimulatedEvent = { due, order: this.sequence++, process, run };
    this.events.push(event);
    return () => {
      event.run = undefined;
    };
  }

  /** Runs the world until it has ended, or an invariant does not hold. */
  async run(world: SimulatedWorld): Promise<void> {
    const { limit = 1_800_000 } = this.settings;
    while (this.violation === undefined && !world.hasEnded()) {
      const event = this.events.pop();
      if (event === undefined) break;
      if (event.run === undefined || event.process?.alive === false) continue;
      this.time = Math.max(this.time, event.due);
      const { process } = event;
      if (process !== undefined && process.stalledUntil > this.time) {
        this.after(process.stalledUntil - this.time, process, event.run);
        continue;
      }
      // Starting an application reads files: real time passes, virtual time does not.
      await event.run();
      await this.settle();
      this.check(this.time <= limit, 'everything ends', () => world.unfinished());
      this.check(++this.steps <= MAX_STEPS, 'everything ends', () => world.unfinished(MAX_STEPS));
    }
    this.check(world.hasEnded(), 'everything ends', () => world.unfinished());
    if (this.violation === undefined) await world.atEnd();
  }

  private async settle(): Promise<void> {
    for (let turns = this.settings.turns ?? 2; turns > 0; turns--) await turn();
  }
}

/** A part of virtual time. */
export interface Span {
  readonly from: number;
  readonly until: number;
}

/** Draws a span in which something is unavailable; `undefined` in most runs. */
export function drawOutage(
  simulation: Simulation,
  kind: FaultKind,
  name: string,
): Span | undefined {
  if (!simulation.happens(kind, name)) return undefined;
  const from = simulation.between(`${kind} ${name} from`, 0, HORIZON / 2);
  return { from, until: from + simulation.between(`${kind} ${name} length`, 3_000, 40_000) };
}

export function isWithin(span: Span | undefined, time: number): boolean {
  return span !== undefined && span.from <= time && time < span.until;
}

/** Hashes a name with a seed to 32 bits. */
export function mix(name: string, seed: number): number {
  let hash = seed ^ 0x9e3779b9;
  for (let i = 0; i < name.length; i++) {
    hash = Math.imul(hash ^ name.charCodeAt(i), 0x5bd1e995) ^ (hash >>> 15);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Never resolves: what a killed process awaits. */
export function never(): Promise<never> {
  return new Promise(() => {});
}
