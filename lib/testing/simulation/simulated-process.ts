import { WebhookClock } from '../../clock/webhook-clock.js';
import { isWithin, mix, never, type Simulation } from './simulation.js';

/** A place where an application runs; after a kill, another process of it starts. */
export class Slot<App = unknown> {
  /** The process that runs now. */
  process!: SimulatedProcess<App>;
  private count = 0;

  /** @param start - starts the application in a process, and resolves with what the world calls */
  constructor(
    readonly simulation: Simulation,
    readonly name: string,
    private readonly start: (process: SimulatedProcess) => Promise<App>,
  ) {
    this.restart();
  }

  /** The application, once it has started. */
  get app(): App | undefined {
    return this.process.app;
  }

  restart(): void {
    const { simulation } = this;
    const process = new SimulatedProcess<App>(this, `${this.name}.${++this.count}`);
    this.process = process;
    simulation.after(0, process, async () => {
      const app = await this.start(process);
      if (!process.alive) return;
      process.app = app;
      simulation.note(process, 'started');
    });
  }
}

export interface ApplicationCall<App> {
  call(app: App): Promise<unknown>;
  done(): void;
  failed(error?: unknown): void;
}

/** Milliseconds that a caller waits for an answer of an application before it asks another process. */
const PATIENCE = 60_000;

/** One process of an application. It can be killed, stall, and see its clock jump at every call of a port. */
export class SimulatedProcess<App = unknown> {
  alive = true;
  stalledUntil = 0;
  /** Milliseconds by which its clock is wrong. */
  skew = 0;
  app: App | undefined;
  /** Whether its calls have their effect at once: what an application awaits while it starts. */
  isStarting = false;
  readonly simulation: Simulation;
  /** The last time at which it was stalled, or a store failed it. */
  private troubledUntil = -Infinity;
  private calls = 0;

  constructor(
    readonly slot: Slot<App>,
    readonly label: string,
  ) {
    this.simulation = slot.simulation;
  }

  pointOf(operation: string): string {
    return `${this.label}/${operation}#${++this.calls}`;
  }

  /** Ends the process: what it awaits never resolves, what it calls is not sent, its timers do not fire. */
  kill(): void {
    const { simulation } = this;
    simulation.note(this, 'KILLED');
    this.alive = false;
    this.app = undefined;
    const wait = simulation.between(`restart ${this.label}`, 50, 20_000);
    simulation.after(wait, undefined, () => this.slot.restart());
  }

  /** A point at which something may happen to the process. @returns whether it goes on */
  survives(point: string): boolean {
    const { simulation } = this;
    if (!this.alive) return false;
    if (simulation.happens('kill', point)) {
      this.kill();
      return false;
    }
    if (simulation.happens('stall', point)) {
      const until = simulation.time + simulation.between(`stall ${point}`, 2_000, 45_000);
      // What waits for the end of an earlier stall still does.
      this.stalledUntil = Math.max(this.stalledUntil, until);
      this.troubledUntil = Math.max(this.troubledUntil, this.stalledUntil);
    }
    if (simulation.happens('clock jump', point)) {
      this.skew = simulation.between(`jump ${point}`, -20_000, 20_000);
    }
    return true;
  }

  /** Whether a store or a stall has kept it from extending its leases within the last milliseconds. */
  wasTroubled(ms: number): boolean {
    return this.troubledUntil > this.simulation.time - ms;
  }

  /** Calls its application; one that was killed or hangs counts as failed. */
  ask(what: string, { call, done, failed }: ApplicationCall<App>): void {
    const { simulation } = this;
    if (this.app === undefined) return failed();
    let isSettled = false;
    const settle = (result: string, next: () => void): void => {
      if (isSettled) return;
      isSettled = true;
      cancel();
      simulation.note(this, `${what}: ${result}`);
      next();
    };
    const cancel = simulation.after(PATIENCE, undefined, () => settle('no answer', failed));
    simulation.after(0, this, () => {
      call(this.app!).then(
        () => settle('done', done),
        (error: unknown) => settle(`fails: ${describeError(error)}`, () => failed(error)),
      );
    });
  }

  /**
   * Calls a server over the network. The effect happens in one step when the call arrives. The process may be killed
   * before the call is sent, and after it had its effect; the reply may be lost, or late.
   *
   * @param server - its name, for outages
   */
  async call<Result>(
    server: string,
    operation: string,
    effect: () => Result | Promise<Result>,
  ): Promise<Result> {
    const { simulation } = this;
    if (this.isStarting) return effect();
    const point = this.pointOf(`${server}.${operation}`);
    if (!this.survives(`${point} before`)) return never();
    const delay = simulation.happens('store slow', point) ? 12_000 : 0;
    if (delay > 0) this.isInTrouble(delay);
    // A call that was sent arrives, even if its process is stalled or killed meanwhile.
    await travel(simulation, undefined, delay, point);
    const isDown = isWithin(simulation.outages.get(server), simulation.time);
    if (simulation.happens('store error', point) || isDown) {
      this.isInTrouble();
      await travel(simulation, this, 0, `${point} error`);
      throw disconnected();
    }
    const [settled] = await Promise.allSettled([(async () => effect())()]);
    if (!this.survives(`${point} after`)) return never();
    const isLost = simulation.happens('store reply lost', point);
    if (isLost) this.isInTrouble();
    await travel(simulation, this, 0, `${point} reply`);
    if (isLost) throw disconnected();
    if (settled.status === 'rejected') throw settled.reason;
    return settled.value;
  }

  private isInTrouble(ms = 0): void {
    this.troubledUntil = Math.max(this.troubledUntil, this.simulation.time + ms);
  }
}

/** The clock of a process, whose time may jump while its timers run on, as those of Node do; or the clock of a server. */
export class SimulatedClock extends WebhookClock {
  constructor(
    private readonly simulation: Simulation,
    private readonly process?: SimulatedProcess,
  ) {
    super();
  }

  override now(): number {
    return this.simulation.wallClock(this.process);
  }

  override wakeAt(at: number, wake: () => void): () => void {
    return this.simulation.after(at - this.now(), this.process, wake);
  }
}

export function describeError(error: unknown): string {
  const { code, message } = error as { code?: string; message?: string };
  return code ?? message ?? String(error);
}

async function travel(
  simulation: Simulation,
  process: SimulatedProcess | undefined,
  delay: number,
  point: string,
): Promise<void> {
  const ms = 1 + (mix(point, simulation.seed) % 5) + delay;
  await new Promise<void>((resolve) => void simulation.after(ms, process, resolve));
}

function disconnected(): Error {
  return Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
}
