// Processes that can be killed, stall, and see their clock jump at every call of a port.
import { WebhookClock } from 'nestjs-webhook-token/ports';
import { HORIZON, mix } from './simulation.mjs';

/** A place where an application runs; after a kill, another process of it starts. */
export class Slot {
  #starts = 0;
  /** The process that runs now. */
  process;

  /** @param start - starts the application in a process, and resolves with what the world calls */
  constructor(simulation, name, start) {
    this.simulation = simulation;
    this.name = name;
    this.start = start;
    this.restart();
  }

  /** The application, once it has started. */
  get app() {
    return this.process.app;
  }

  get starts() {
    return this.#starts;
  }

  restart() {
    const { simulation } = this;
    const process = new SimulatedProcess(this, `${this.name}.${++this.#starts}`);
    this.process = process;
    simulation.after(0, process, async () => {
      const app = await this.start(process);
      if (!process.alive) return;
      process.app = app;
      simulation.note(process, 'started');
    });
  }
}

/** One process of an application. */
export class SimulatedProcess {
  alive = true;
  stalledUntil = 0;
  /** Milliseconds by which its clock is wrong. */
  skew = 0;
  /** The last time at which it was stalled, or a store failed it. */
  troubledUntil = -Infinity;
  app;
  #calls = 0;

  constructor(slot, label) {
    this.slot = slot;
    this.simulation = slot.simulation;
    this.label = label;
  }

  /** Names a point of this process. */
  pointOf(operation) {
    return `${this.label}/${operation}#${++this.#calls}`;
  }

  /** Ends the process: what it awaits never resolves, what it calls is not sent, its timers do not fire. */
  kill() {
    const { simulation } = this;
    simulation.note(this, 'KILLED');
    this.alive = false;
    this.app = undefined;
    const wait = simulation.between(`restart ${this.label}`, 50, 20_000);
    simulation.after(wait, undefined, () => this.slot.restart());
  }

  /** A point at which something may happen to the process. @returns whether it goes on */
  survives(point) {
    const { simulation } = this;
    if (!this.alive) return false;
    if (simulation.happens('kill', point)) {
      this.kill();
      return false;
    }
    if (simulation.happens('stall', point)) {
      this.stalledUntil = simulation.time + simulation.between(`stall ${point}`, 2_000, 45_000);
      this.troubledUntil = this.stalledUntil;
    }
    if (simulation.happens('clock jump', point)) {
      this.skew = simulation.between(`jump ${point}`, -20_000, 20_000);
    }
    return true;
  }

  /** Whether a store or a stall has kept it from extending its leases within the last milliseconds. */
  wasTroubled(ms) {
    return this.troubledUntil > this.simulation.time - ms;
  }

  /**
   * Calls a server over the network. The effect happens in one step when the call arrives. The process may be killed
   * before the call is sent, and after it had its effect; the reply may be lost, or late.
   *
   * @param server - its name, for outages
   */
  async call(server, operation, effect) {
    const { simulation } = this;
    const point = this.pointOf(`${server}.${operation}`);
    if (!this.survives(`${point} before`)) return never();
    const delay = simulation.happens('store slow', point) ? 12_000 : 0;
    if (delay > 0) this.#isInTrouble(delay);
    // A call that was sent arrives, even if its process is stalled or killed meanwhile.
    await travel(simulation, undefined, delay, point);
    if (simulation.happens('store error', point) || isDown(simulation, server)) {
      this.#isInTrouble();
      await travel(simulation, this, 0, `${point} error`);
      throw disconnected();
    }
    const [settled] = await Promise.allSettled([(async () => effect())()]);
    if (!this.survives(`${point} after`)) return never();
    const isLost = simulation.happens('store reply lost', point);
    if (isLost) this.#isInTrouble();
    await travel(simulation, this, 0, `${point} reply`);
    if (isLost) throw disconnected();
    if (settled.status === 'rejected') throw settled.reason;
    return settled.value;
  }

  #isInTrouble(ms = 0) {
    this.troubledUntil = Math.max(this.troubledUntil, this.simulation.time + ms);
  }
}

/** The clock of a process: its time may jump, its timers run on, as those of Node do. */
export class ProcessClock extends WebhookClock {
  constructor(process) {
    super();
    this.process = process;
  }

  now() {
    return this.process.simulation.wallClock(this.process);
  }

  wakeAt(at, wake) {
    return this.process.simulation.after(at - this.now(), this.process, wake);
  }
}

/** The clock of a server. */
export class ServerClock extends WebhookClock {
  constructor(simulation) {
    super();
    this.simulation = simulation;
  }

  now() {
    return this.simulation.wallClock(undefined);
  }

  wakeAt(at, wake) {
    return this.simulation.after(at - this.now(), undefined, wake);
  }
}

/** Draws a span in which something is unavailable; `undefined` in most runs. */
export function drawOutage(simulation, kind, name) {
  if (!simulation.happens(kind, name)) return undefined;
  const from = simulation.between(`${kind} ${name} from`, 0, HORIZON / 2);
  return { from, until: from + simulation.between(`${kind} ${name} length`, 3_000, 40_000) };
}

export function isWithin(span, time) {
  return span !== undefined && span.from <= time && time < span.until;
}

async function travel(simulation, process, delay, point) {
  const ms = 1 + (mix(point, simulation.seed) % 5) + delay;
  await new Promise((resolve) => void simulation.after(ms, process, resolve));
}

function isDown(simulation, server) {
  return isWithin(simulation.outages?.get(server), simulation.time);
}

function disconnected() {
  return Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
}

function never() {
  return new Promise(() => {});
}
