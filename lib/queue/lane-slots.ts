import type { ConfigurationFaults } from '../options/configuration-faults.js';

/** Attempts that a process runs at once, in all and to one destination. */
export interface QueueConcurrency {
  readonly concurrency: number;
  readonly concurrencyPerDestination: number;
}

/** Fills and checks them: 50, and a quarter of them, at least 1. */
export function resolveConcurrency(
  options: { readonly [Name in keyof QueueConcurrency]?: number | undefined },
  faults: ConfigurationFaults,
): QueueConcurrency {
  const { concurrency = 50 } = options;
  const { concurrencyPerDestination = Math.max(1, Math.floor(concurrency / 4)) } = options;
  requireCount('concurrency', concurrency, faults);
  requireCount('concurrencyPerDestination', concurrencyPerDestination, faults);
  return { concurrency, concurrencyPerDestination };
}

/** Adds a fault for what is no number of things. */
export function requireCount(name: string, count: number, faults: ConfigurationFaults): void {
  faults.require(Number.isSafeInteger(count) && count > 0, name, 'must be a whole number above 0');
}

/** Counts what runs to each destination, so that one that answers nobody cannot take every slot. */
export class LaneSlots {
  private readonly running = new Map<string, number>();

  constructor(private readonly perLane: number) {}

  /** The slots left to those destinations that have something running. */
  get left(): Record<string, number> {
    const left: Record<string, number> = {};
    for (const [lane, count] of this.running) left[lane] = this.perLane - count;
    return left;
  }

  /** The destinations that have no slot left, so that something due may wait for one. */
  get full(): string[] {
    return [...this.running].filter(([, count]) => count >= this.perLane).map(([lane]) => lane);
  }

  hasRoom(lane: string): boolean {
    return (this.running.get(lane) ?? 0) < this.perLane;
  }

  enter(lane: string): void {
    this.running.set(lane, (this.running.get(lane) ?? 0) + 1);
  }

  leave(lane: string): void {
    const count = this.running.get(lane)! - 1;
    if (count === 0) this.running.delete(lane);
    else this.running.set(lane, count);
  }
}
