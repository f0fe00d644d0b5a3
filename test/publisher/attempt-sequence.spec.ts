import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { InProcessQueue } from 'nestjs-webhook-token';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import { PublisherBench } from './publisher-bench.js';
import { WireReceiver, type Script } from './wire-receiver.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** What the receiver answers, attempt by attempt, and when the attempts come that follow from it: the waits in between. */
const SCENARIOS: readonly (readonly [
  name: string,
  answers: readonly ReturnType<Script>[],
  waits: readonly number[],
  end: string,
])[] = [
  ['acknowledged immediately', [{ status: 204 }], [], 'delivered'],
  [
    'the whole schedule',
    Array.from({ length: 10 }, () => ({ status: 500 })),
    // After five failures in a row the endpoint is paused; its trials are made at the schedule's times, which are later.
    [
      5 * SECOND,
      5 * MINUTE,
      30 * MINUTE,
      2 * HOUR,
      5 * HOUR,
      10 * HOUR,
      14 * HOUR,
      20 * HOUR,
      24 * HOUR,
    ],
    'dead: http_500 after 10',
  ],
  [
    'every request of a receiver to wait',
    [
      { status: 503, headers: { 'Retry-After': '120' } },
      { status: 409 },
      { status: 429 },
      // A kept connection that is closed says nothing: the request is repeated on a new one.
      'reset',
      'reset',
      { status: 302, headers: { Location: 'http://127.0.0.1:1/' } },
      { status: 200 },
    ],
    [2 * MINUTE, 5 * SECOND, 30 * MINUTE, 2 * HOUR, 5 * HOUR],
    'delivered',
  ],
  [
    'given up after a 410',
    [{ status: 500 }, { status: 410 }],
    [5 * SECOND],
    'dead: http_410 after 2',
  ],
  [
    'a receiver that asks for more than a day',
    [{ status: 503, headers: { 'Retry-After': '9'.repeat(20) } }, { status: 204 }],
    [24 * HOUR],
    'delivered',
  ],
];

type CreateQueue = (clock: TestClock) => Promise<WebhookQueue>;

/**
 * Plays a scenario on a queue, on a clock that is put to each attempt's time as soon as it is known: what an engine does
 * with the time in between is its own affair, and that of its contract.
 */
async function play(
  create: CreateQueue,
  answers: readonly ReturnType<Script>[],
): Promise<{ waits: number[]; attempts: number[]; end: string }> {
  const clock = new TestClock();
  const queue = await create(clock);
  const receiver = await WireReceiver.start((_, index) => answers[index]!);
  const bench = await PublisherBench.start(
    { endpoints: [{ id: 'crm', url: receiver.url }], queue },
    undefined,
    clock,
  );
  const waits: number[] = [];
  const attempts: number[] = [];
  const over = new AbortController();
  const end = new Promise<string>((resolve) => {
    bench.onRun(({ outcome, attempt }) => {
      if (attempt !== undefined) attempts.push(attempt.attempt);
      if (outcome.type === 'delivered') return resolve('delivered');
      if (outcome.type === 'dead') {
        return resolve(`dead: ${outcome.reason} after ${outcome.attempts}`);
      }
      if (outcome.type === 'retry') waits.push(outcome.at - clock.now());
      clock.set(Math.max(outcome.at, clock.now()));
    });
  });
  await bench.publisher.publish('order.created', ['x']);
  // A wake-up whose time has come fires immediately.
  const waking = (async () => {
    while (!over.signal.aborted) await clock.advance(0);
  })();
  const ended = await end;
  await bench.module.close();
  over.abort();
  await waking;
  await receiver.stop();
  return { waits, attempts, end: ended };
}

function playsAlike(create: CreateQueue): void {
  it.each(SCENARIOS)('makes attempts at the expected times: %s', async (_, answers, waits, end) => {
    expect(await play(create, answers)).toEqual({
      waits,
      attempts: [0, ...waits].map((__, index) => index + 1),
      end,
    });
  });
}

describe('InProcessQueue', () => playsAlike(async (clock) => new InProcessQueue({ clock })));
