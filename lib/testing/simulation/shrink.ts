import type { Violation } from './simulation.js';

export interface SeedResult {
  readonly seed: number;
  /** Numbers of the events that were published. */
  readonly events: readonly number[];
  readonly violation: Violation | undefined;
  readonly faults: readonly string[];
  readonly trace: readonly string[];
  readonly digest: number;
  readonly steps: number;
}

/** What a seed is run with again. */
export interface Reduction {
  readonly events: readonly number[];
  readonly only: ReadonlySet<string>;
  readonly traced: true;
}

/**
 * Finds fewer faults and events that still violate the same invariant: delta debugging over the faults that happened.
 *
 * @param failed - the result of a seed that violates an invariant
 * @param simulate - runs the seed again
 * @returns the result of the shortest run that was found, with its trace
 */
export async function shrink<Result extends SeedResult>(
  failed: Result,
  simulate: (reduction: Reduction) => Promise<Result>,
): Promise<Result> {
  const attempt = async (
    faults: readonly string[],
    events: readonly number[],
  ): Promise<Result | undefined> => {
    const result = await simulate({ events, only: new Set(faults), traced: true });
    return result.violation?.invariant === failed.violation?.invariant ? result : undefined;
  };
  let best = (await attempt(failed.faults, failed.events)) ?? failed;
  for (const event of failed.events) {
    const others = best.events.filter((one) => one !== event);
    if (others.length > 0) best = (await attempt(best.faults, others)) ?? best;
  }
  for (let parts = 2; best.faults.length > 0;) {
    const { faults, events } = best;
    const width = Math.ceil(faults.length / parts);
    let smaller: Result | undefined;
    for (let from = 0; from < faults.length && smaller === undefined; from += width) {
      smaller = await attempt(faults.toSpliced(from, width), events);
    }
    if (smaller !== undefined) {
      best = smaller;
      parts = Math.max(2, parts - 1);
    } else if (width === 1) {
      return best;
    } else {
      parts = Math.min(2 * parts, faults.length);
    }
  }
  return best;
}
