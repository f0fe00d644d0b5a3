import { describe, expect, it } from '@jest/globals';
import { LaneSlots, type LaneSlot } from '../../lib/queue/lane-slots.js';

const LIMITS = { concurrency: 50, concurrencyPerDestination: 12 };
const MINUTE = 60_000;

function slotsAt(limits = LIMITS) {
  const slots = new LaneSlots(limits);
  let now = 0;
  return {
    slots,
    pass: (ms: number) => (now += ms),
    free: (lane: string) => slots.freeSlotsOf(lane, now),
    enter: (lane: string) => slots.enter(lane, now),
    leave: (slot: LaneSlot, wasAttempted = true) => slots.leave(slot, now, wasAttempted),
    /** Takes all free slots, and returns their number. */
    fill(lane: string): LaneSlot[] {
      const taken: LaneSlot[] = [];
      while (slots.hasFreeSlot(lane, now)) taken.push(slots.enter(lane, now));
      return taken;
    },
    /** Makes one attempt of this many milliseconds. */
    attempt(lane: string, ms: number): void {
      const slot = slots.enter(lane, now);
      now += ms;
      slots.leave(slot, now, true);
    },
  };
}

describe('LaneSlots', () => {
  it('gives a lane two slots until its first attempt has ended, then all of its own', () => {
    const { fill, leave, pass, free } = slotsAt();
    const [first] = fill('crm');
    expect(free('crm')).toBe(0);

    pass(100);
    leave(first!);
    expect(free('crm')).toBe(11);
  });

  it('ignores a run that made no request', () => {
    const { fill, leave, free } = slotsAt();
    const [first] = fill('crm');

    leave(first!, false);
    expect(free('crm')).toBe(1);
  });

  it('remembers the mean of an idle lane', () => {
    const { attempt, free } = slotsAt();
    attempt('crm', 100);
    expect(free('crm')).toBe(12);
  });

  it('does not forget slow lanes for fast ones', () => {
    const { attempt, enter, fill } = slotsAt();
    const slow = Array.from({ length: 100 }, (_, index) => `slow-${index}`);
    for (const lane of slow) attempt(lane, 4_000);
    for (let index = 0; index < 400; index++) attempt(`fast-${index}`, 1);
    enter('fast-0');

    expect(slow.flatMap((lane) => fill(lane))).toHaveLength(10);
  });

  it('gives slow lanes a fifth of all slots together, while others are in use', () => {
    const { attempt, enter, fill, free } = slotsAt();
    for (const lane of ['a', 'b', 'c']) attempt(lane, 14_000);
    enter('fast');

    const taken = ['a', 'b', 'c'].map((lane) => fill(lane).length);
    expect(taken.reduce((sum, count) => sum + count)).toBe(10);
    expect(free('a')).toBeLessThanOrEqual(0);
    expect(free('another')).toBe(2);
  });

  it('gives slow lanes four fifths if no others are in use', () => {
    const { attempt, fill, pass } = slotsAt();
    const lanes = ['a', 'b', 'c', 'd', 'e'];
    for (const lane of lanes) attempt(lane, 2_000);
    pass(2 * MINUTE);

    const taken = lanes.map((lane) => fill(lane).length);
    expect(taken.reduce((sum, count) => sum + count)).toBe(40);
  });

  it('divides the slow slots equally among the slow lanes that need them', () => {
    const { attempt, enter, fill, leave, free } = slotsAt();
    for (const lane of ['a', 'b']) attempt(lane, 14_000);
    enter('fast');
    const [first, ...others] = fill('a');
    expect(others).toHaveLength(9);
    expect(free('b')).toBeLessThanOrEqual(0);

    leave(first!);
    expect(free('a')).toBeLessThanOrEqual(0);
    expect(free('b')).toBe(1);
  });

  it('counts a lane as slow as soon as one of its attempts takes that long', () => {
    const { attempt, fill, pass, free } = slotsAt();
    attempt('crm', 50);
    expect(fill('crm')).toHaveLength(12);
    pass(1_001);
    attempt('other', 50);

    expect(fill('other').length + free('crm')).toBe(12);
  });

  it('counts a lane as fast again once its attempts are', () => {
    const { attempt, free } = slotsAt();
    attempt('crm', 3_000);
    expect(free('crm')).toBe(10);
    for (let n = 0; n < 3; n++) attempt('crm', 10);

    expect(free('crm')).toBe(12);
  });

  it('leaves a slot to slow lanes however small the queue is', () => {
    const { attempt, free } = slotsAt({ concurrency: 1, concurrencyPerDestination: 1 });
    attempt('crm', 14_000);
    expect(free('crm')).toBe(1);
  });
});
