import { simulate } from './scenario.mjs';

/**
 * Finds fewer faults and events that still violate the same invariant: delta debugging over the faults that happened.
 *
 * @param failed - the result of a seed that violates an invariant
 * @param plant - as it was run with
 * @returns the result of the shortest run that was found, with its trace
 */
export async function shrink(failed, plant) {
  const attempt = async (faults, events) => {
    const result = await simulate(failed.seed, {
      plant,
      events,
      only: new Set(faults),
      traced: true,
    });
    return result.violation?.invariant === failed.violation.invariant ? result : undefined;
  };
  let best = (await attempt(failed.faults, failed.events)) ?? failed;
  for (const event of failed.events) {
    const others = best.events.filter((one) => one !== event);
    if (others.length > 0) best = (await attempt(best.faults, others)) ?? best;
  }
  for (let parts = 2; best.faults.length > 0;) {
    const { faults, events } = best;
    const width = Math.ceil(faults.length / parts);
    let smaller;
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
