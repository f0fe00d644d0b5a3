import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { LaneGate } from '../../lib/bullmq/lane-gate.js';

describe('the wait of a delivery whose lane is full', () => {
  function gateWithClock() {
    const clock = new TestClock();
    const gate = new LaneGate({ concurrency: 20, concurrencyPerDestination: 4 }, clock);
    const enter = async () => (await gate.enter('crm', 1))!;
    /** Runs one attempt that takes so many milliseconds. */
    const attempt = async (ms: number): Promise<void> => {
      const slot = await enter();
      await clock.advance(ms);
      gate.leave(slot, true);
    };
    /** The wait of the last of so many deliveries that find the lane full, in milliseconds. */
    const lastWait = async (count: number): Promise<number> => {
      const slots = await Promise.all(Array.from({ length: 4 }, enter));
      const waits = Array.from({ length: count }, () => gate.retryAt('crm') - clock.now());
      for (const slot of slots) if (slot !== undefined) gate.leave(slot, false);
      return waits.at(-1)!;
    };
    return { clock, gate, enter, attempt, lastWait };
  }

  it('grows with the time that the lane needs for those before it', async () => {
    const { attempt, lastWait } = gateWithClock();
    await attempt(800);

    expect(await lastWait(50)).toBe(50 * 200);
  });

  it('does not count an attempt that ran while Redis was away', async () => {
    const { clock, gate, enter, attempt, lastWait } = gateWithClock();
    await attempt(4);
    const slot = await enter();
    gate.recordOutage();
    await clock.advance(15_000);
    gate.recordOutage();
    gate.leave(slot, true);

    expect(await lastWait(50)).toBeLessThan(1_000);
  });

  it('shrinks when the lane has become faster', async () => {
    const { attempt, lastWait } = gateWithClock();
    await attempt(900);
    expect(await lastWait(200)).toBe(30_000);
    for (let count = 0; count < 8; count++) await attempt(1);

    expect(await lastWait(1)).toBeLessThan(1_000);
  });
});
