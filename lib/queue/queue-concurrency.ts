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
