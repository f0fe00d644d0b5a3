import { describe, expect, it } from '@jest/globals';
import { LaneDivision } from '../../lib/postgres/lane-division.js';

const LIMITS = { concurrency: 50, concurrencyPerDestination: 12 };

function slotsAt(limits = LIMITS) {
  const slots = new LaneDivision(limits);
  let now = 0;
  return {
    slots,
    pass: (ms: number) => (now += ms),
    enter: (lane: string) => slots.enter(lane, now),
    /** Takes all free slots. */
    fill(lane: string): void {
      while (slots.hasFreeSlot(lane, now)) slots.enter(lane, now);
    },
    /** Makes one attempt of this many milliseconds. */
    attempt(lane: string, ms: number): void {
      const slot = slots.enter(lane, now);
      now += ms;
      slots.leave(slot, now, true);
    },
  };
}

describe('LaneDivision', () => {
  it('gives each lane its own slots, and divides the shared ones among the slow lanes', () => {
    const { attempt, enter, fill, slots, pass } = slotsAt();
    attempt('slow', 14_000);
    attempt('slower', 15_000);
    attempt('fast', 10);
    enter('fast');
    pass(1);

    expect(slots.freeSlots(29_011)).toEqual({
      lanes: { fast: 11, slow: 5, slower: 5 },
      elsewhere: 2,
    });
    fill('slow');
    const { lanes } = slots.freeSlots(29_011);
    expect(lanes['slow']! + lanes['slower']!).toBeLessThanOrEqual(5);
  });

  it('gives slots that are too few for all slow lanes to those with due deliveries', () => {
    const { attempt, enter, slots } = slotsAt({ concurrency: 5, concurrencyPerDestination: 2 });
    for (const lane of ['idle', 'due']) attempt(lane, 2_000);
    enter('fast');

    expect(slots.contendingLanes(4_000)).toEqual(['idle', 'due']);
    const { lanes } = slots.freeSlots(4_000, new Set(['due']));
    expect(lanes).toMatchObject({ idle: 0, due: 1 });
  });

  it('reports no contending lanes if there is a slot for each, or none at all', () => {
    const { attempt, enter, slots } = slotsAt({ concurrency: 10, concurrencyPerDestination: 2 });
    for (const lane of ['a', 'b']) attempt(lane, 2_000);
    enter('fast');
    expect(slots.contendingLanes(4_000)).toEqual([]);
    for (const lane of ['a', 'b']) enter(lane);

    expect(slots.contendingLanes(4_000)).toEqual([]);
  });
});
