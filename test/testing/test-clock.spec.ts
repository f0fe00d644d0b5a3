import { describe, expect, it } from '@jest/globals';
import { TestClock } from '../../lib/testing/test-clock.js';

const START = 1_000_000;

describe('TestClock', () => {
  it('stands still until it is moved', async () => {
    const clock = new TestClock(START);

    expect(clock.now()).toBe(START);
    await clock.advance(250);
    expect(clock.now()).toBe(START + 250);
  });

  it('fires due wake-ups in the order of their times, each at its own time', async () => {
    const clock = new TestClock(START);
    const fired: [string, number][] = [];
    const note = (name: string) => () => fired.push([name, clock.now() - START]);
    clock.wakeAt(START + 30, note('third'));
    clock.wakeAt(START + 10, note('first'));
    clock.wakeAt(START + 20, note('second'));
    clock.wakeAt(START + 41, note('later'));

    await clock.advance(40);

    expect(fired).toEqual([
      ['first', 10],
      ['second', 20],
      ['third', 30],
    ]);
    expect(clock.waiting).toBe(1);
  });

  it('waits for the promises that a wake-up starts, and fires the wake-ups that they schedule', async () => {
    const clock = new TestClock(START);
    const beats: number[] = [];
    const beat = async (): Promise<void> => {
      await Promise.resolve();
      beats.push(clock.now() - START);
      clock.wakeAt(clock.now() + 10, () => void beat());
    };
    clock.wakeAt(START + 10, () => void beat());

    await clock.advance(35);

    expect(beats).toEqual([10, 20, 30]);
  });

  it('fires nothing that was cancelled, and cancelling twice is harmless', async () => {
    const clock = new TestClock(START);
    const fired: string[] = [];
    const cancel = clock.wakeAt(START + 10, () => fired.push('cancelled'));
    clock.wakeAt(START + 10, () => fired.push('kept'));
    cancel();
    cancel();

    await clock.advance(10);

    expect(fired).toEqual(['kept']);
  });

  it('wakes immediately, but asynchronously, for a past time', async () => {
    const clock = new TestClock(START);
    const woken = new Promise<string>((resolve) => {
      let within = true;
      clock.wakeAt(START - 1, () => resolve(within ? 'within the call' : 'after it'));
      within = false;
    });

    await expect(woken).resolves.toBe('after it');
    expect(clock.waiting).toBe(0);
  });

  it('can be set back and forth without firing a wake-up', async () => {
    const clock = new TestClock(START);
    const fired: number[] = [];
    clock.wakeAt(START + 10, () => fired.push(clock.now()));

    clock.set(START + 100);
    expect(fired).toEqual([]);
    await clock.advance(0);
    expect(fired).toEqual([START + 100]);
    clock.set(START);
    expect(clock.now()).toBe(START);
  });

  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY])('refuses to advance by %p', async (ms) => {
    await expect(new TestClock().advance(ms)).rejects.toThrow(RangeError);
  });
});
