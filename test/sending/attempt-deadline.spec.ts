import { beforeEach, describe, expect, it } from '@jest/globals';
import { AttemptDeadlines } from '../../lib/sending/attempt-deadline.js';
import { TestClock } from '../../lib/testing/index.js';

const SECOND = 1_000;

let clock: TestClock;
let deadlines: AttemptDeadlines;

beforeEach(() => {
  clock = new TestClock();
  deadlines = new AttemptDeadlines(clock);
});

describe('the deadlines of attempts', () => {
  it('end each attempt after its own timeout', async () => {
    const long = deadlines.start(clock.now(), 15 * SECOND);
    const short = deadlines.start(clock.now(), 5 * SECOND);

    await clock.advance(5 * SECOND);
    expect([long.aborted, short.aborted]).toEqual([false, true]);
    expect(short.reason).toBe('timeout');

    const late = deadlines.start(clock.now(), 20 * SECOND);
    await clock.advance(10 * SECOND);
    expect([long.aborted, late.aborted]).toEqual([true, false]);

    await clock.advance(10 * SECOND);
    expect(late.aborted).toBe(true);
    for (const deadline of [long, short, late]) deadlines.end(deadline);
    expect(clock.waiting).toBe(0);
  });

  it('leave an attempt alone that has ended', async () => {
    const ended = deadlines.start(clock.now(), 5 * SECOND);
    const later = deadlines.start(clock.now(), 6 * SECOND);
    deadlines.end(ended);

    await clock.advance(10 * SECOND);

    expect([ended.aborted, later.aborted]).toEqual([false, true]);
  });

  it('end all attempts at shutdown', () => {
    const running = deadlines.start(clock.now(), 5 * SECOND);

    deadlines.abortAll();

    expect(running).toMatchObject({ aborted: true, reason: 'aborted' });
  });
});
