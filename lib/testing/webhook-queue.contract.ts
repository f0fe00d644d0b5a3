import assert from 'node:assert/strict';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type {
  DeliveryOutcome,
  DeliveryReceipt,
  EnqueuedDelivery,
  WebhookQueue,
} from '../queue/webhook-queue.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import type { ContractCase } from './contract-case.interface.js';
import { TestClock } from './test-clock.js';

/** The queue under test. */
export interface WebhookQueueContractOptions {
  /** Creates an empty queue that uses this clock, or the clock of its server. */
  readonly create: (clock: WebhookClock) => WebhookQueue | Promise<WebhookQueue>;
  /**
   * Lets time pass; default: advances the clock that `create` received. For a queue that uses the clock of its server,
   * wait in real time.
   */
  readonly advance?: ((ms: number) => Promise<void>) | undefined;
}

/** Milliseconds between two checks of a condition. */
const STEP = 10;
/** Checks of a condition before a case fails: half a minute of a busy machine. */
const PATIENCE = 3_000;
/** Milliseconds between two checks if a lease may have to expire first. */
const LONG_STEP = 1_000;
/** Milliseconds that the clock of a server may be ahead. */
const AHEAD = 1_000;

/**
 * The contract of {@link WebhookQueue} as test cases for any framework:
 *
 * @example
 * ```ts
 * for (const { name, run } of webhookQueueContract({ create: (clock) => new MyQueue({ clock }) })) {
 *   it(name, run);
 * }
 * ```
 */
export function webhookQueueContract(options: WebhookQueueContractOptions): ContractCase[] {
  return Object.entries(RULES).map(([name, rule]) => ({
    name,
    run: async () => {
      const clock = new TestClock();
      const queue = await options.create(clock);
      const advance = options.advance ?? ((ms: number) => clock.advance(ms));
      const bench = new Bench(queue, options.advance === undefined ? clock : undefined, advance);
      try {
        await rule(bench);
      } finally {
        await bench.close();
      }
    },
  }));
}

type Script = (
  delivery: WebhookDelivery,
  attempt: number,
) => DeliveryOutcome | Promise<DeliveryOutcome>;

/** A queue whose handler follows a script and records its calls. */
class Bench {
  readonly runs: { readonly id: string; readonly attempt: number }[] = [];
  /** When each of the runs started, in epoch milliseconds. */
  readonly startedAt: number[] = [];
  readonly received: WebhookDelivery[] = [];
  private stopped = false;

  constructor(
    readonly queue: WebhookQueue,
    private readonly clock: WebhookClock | undefined,
    readonly advance: (ms: number) => Promise<void>,
  ) {}

  now(): number {
    return this.clock?.now() ?? Date.now();
  }

  async consume(script: Script = () => ({ type: 'delivered' })): Promise<void> {
    await this.queue.consume(async (delivery, attempt) => {
      this.runs.push({ id: delivery.id, attempt });
      this.startedAt.push(this.now());
      this.received.push(delivery);
      return script(delivery, attempt);
    });
  }

  enqueue(...ids: string[]): ReturnType<WebhookQueue['enqueue']> {
    const notBefore = this.now();
    return this.queue.enqueue(ids.map((id) => ({ delivery: deliveryNamed(id), notBefore })));
  }

  /** The receipt for an id that is enqueued again. */
  async receiptOf(id: string): Promise<DeliveryReceipt> {
    const [receipt] = await this.enqueue(id);
    return receipt!;
  }

  async attemptsOf(id: string): Promise<number | undefined> {
    const [known] = await this.queue.find([id]);
    return known?.attempts;
  }

  async until(condition: () => boolean | Promise<boolean>, step = STEP): Promise<void> {
    for (let round = 0; round < PATIENCE; round++) {
      if (await condition()) return;
      await this.advance(step);
    }
    assert.fail('the expected state was not reached in time');
  }

  async untilRuns(count: number, step = STEP): Promise<void> {
    await this.until(() => this.runs.length >= count, step);
  }

  async stop(grace: number): Promise<number> {
    this.stopped = true;
    return this.queue.stop(this.now() + grace);
  }

  async close(): Promise<void> {
    if (!this.stopped) await this.stop(0).catch(() => {});
  }
}

const RULES: Record<string, (bench: Bench) => Promise<void>> = {
  'passes a delivery unchanged to the handler, as attempt 1': async (bench) => {
    await bench.consume();
    const [receipt] = await bench.enqueue('whole');

    await bench.untilRuns(1);

    assert.deepEqual(receipt, { id: 'whole', status: 'recorded' });
    assert.deepEqual(bench.runs, [{ id: 'whole', attempt: 1 }]);
    const expected = deliveryNamed('whole');
    // A queue may return any Uint8Array.
    const received = bench.received[0]!;
    const bytes = Buffer.from(received.payload.bytes!);
    assert.deepEqual({ ...received, payload: { ...received.payload, bytes } }, expected);
  },

  'keeps deliveries that are recorded before consume': async (bench) => {
    await bench.enqueue('early');
    await bench.advance(STEP);
    await bench.consume();

    await bench.untilRuns(1);
  },

  'records an id once, within one call and across calls': async (bench) => {
    await bench.enqueue('twin', 'twin');
    const again = await bench.enqueue('twin', 'other');

    await bench.consume();
    await bench.untilRuns(2);
    await bench.advance(STEP * 5);

    assert.deepEqual(
      again.map(({ id, status }) => ({ id, status })),
      [
        { id: 'twin', status: 'pending' },
        { id: 'other', status: 'recorded' },
      ],
    );
    assert.deepEqual(bench.runs.map(({ id }) => id).sort(), ['other', 'twin']);
  },

  'records an id once across concurrent calls, and the other ids of each call': async (bench) => {
    const names = Array.from({ length: 20 }, (_, index) => `own-${index}`);
    const calls = await Promise.all(names.map(async (name) => bench.enqueue('twin', name)));

    const statuses = calls.map(([twin]) => twin!.status).sort();
    assert.deepEqual(statuses, [...names.slice(1).map(() => 'pending'), 'recorded']);
    assert.deepEqual(
      calls.map(([, own]) => own),
      names.map((id) => ({ id, status: 'recorded' })),
    );
    await bench.consume();
    await bench.untilRuns(names.length + 1);
  },

  'knows an id after it was delivered': async (bench) => {
    await bench.consume();
    await bench.enqueue('done');
    await bench.untilRuns(1);
    await bench.until(async () => (await bench.receiptOf('done')).status === 'delivered');

    assert.deepEqual(await bench.receiptOf('done'), {
      id: 'done',
      status: 'delivered',
      attempts: 1,
    });
    await bench.advance(STEP * 5);
    assert.equal(bench.runs.length, 1);
  },

  'finds known deliveries without recording anything': async (bench) => {
    await bench.consume(() => ({ type: 'dead', reason: 'http_500', attempts: 1 }));
    await bench.enqueue('asked');
    await bench.until(async () => (await bench.queue.listDead()).length === 1);

    assert.deepEqual(await bench.queue.find(['unknown', 'asked', 'unknown']), [
      undefined,
      { id: 'asked', status: 'dead', attempts: 1, reason: 'http_500' },
      undefined,
    ]);
    assert.equal((await bench.receiptOf('unknown')).status, 'recorded');
  },

  'runs no delivery before it is due': async (bench) => {
    await bench.consume();
    const notBefore = bench.now() + 2_000;
    await bench.queue.enqueue([{ delivery: deliveryNamed('later'), notBefore }]);

    await bench.advance(2_000);
    await bench.untilRuns(1);
    assert.ok(bench.startedAt[0]! > notBefore - AHEAD, 'it must not run before it is due');
  },

  'retries at the time of the outcome, as the next attempt': async (bench) => {
    let at = Infinity;
    await bench.consume((_, attempt) =>
      attempt === 1
        ? { type: 'retry', at: (at = bench.now() + 2_000), reason: 'http_500' }
        : { type: 'delivered' },
    );
    await bench.enqueue('again');

    await bench.advance(2_000);
    await bench.untilRuns(2);
    assert.deepEqual(
      bench.runs.map(({ attempt }) => attempt),
      [1, 2],
    );
    assert.ok(bench.startedAt[1]! > at - AHEAD, 'it must not be retried before that time');
  },

  'reports the next attempt of a pending delivery': async (bench) => {
    const at = bench.now() + 3_600_000;
    await bench.consume(() => ({ type: 'retry', at, reason: 'http_500' }));
    await bench.enqueue('waiting');
    await bench.until(async () => (await bench.attemptsOf('waiting')) === 1);

    assert.deepEqual(await bench.receiptOf('waiting'), {
      id: 'waiting',
      status: 'pending',
      attempts: 1,
      nextAttemptAt: at,
      reason: 'http_500',
    });
    assert.equal(bench.runs.length, 1);
  },

  'counts no attempt for a deferred delivery': async (bench) => {
    await bench.consume(() =>
      bench.runs.length === 1 ? { type: 'defer', at: bench.now() + 500 } : { type: 'delivered' },
    );
    await bench.enqueue('deferred');

    await bench.advance(500);
    await bench.untilRuns(2);

    assert.deepEqual(
      bench.runs.map(({ attempt }) => attempt),
      [1, 1],
    );
  },

  'lists a dead delivery and does not run it again': async (bench) => {
    await bench.consume(() => ({ type: 'dead', reason: 'http_500', attempts: 1 }));
    await bench.enqueue('lost');
    await bench.until(async () => (await bench.queue.listDead()).length === 1);
    await bench.advance(STEP * 5);

    const [dead] = await bench.queue.listDead();
    assert.equal(dead!.delivery.id, 'lost');
    assert.equal(dead!.reason, 'http_500');
    assert.equal(dead!.attempts, 1);
    assert.deepEqual(await bench.receiptOf('lost'), {
      id: 'lost',
      status: 'dead',
      attempts: 1,
      reason: 'http_500',
    });
    assert.equal(bench.runs.length, 1);
  },

  'counts pending and dead deliveries, if it counts': async (bench) => {
    const due = bench.now() + 3_600_000;
    await bench.consume(({ id }) =>
      id === 'lost' ? { type: 'dead', reason: 'http_500', attempts: 1 } : { type: 'delivered' },
    );
    await bench.enqueue('lost', 'fine');
    await bench.queue.enqueue([{ delivery: deliveryNamed('late'), notBefore: due }]);
    await bench.until(async () => {
      const { pending, dead } = (await bench.queue.counts?.()) ?? { pending: 1, dead: 1 };
      return pending === 1 && dead === 1;
    });
  },

  'attempts a redelivered delivery again under its id': async (bench) => {
    let isBroken = true;
    await bench.consume((_, attempt) =>
      isBroken ? { type: 'dead', reason: 'http_500', attempts: attempt } : { type: 'delivered' },
    );
    await bench.enqueue('revived');
    await bench.until(async () => (await bench.queue.listDead()).length === 1);
    isBroken = false;

    assert.deepEqual(await bench.queue.redeliver(['revived', 'unknown', 'revived']), ['revived']);
    await bench.untilRuns(2);

    assert.deepEqual(bench.runs.at(-1), { id: 'revived', attempt: 1 });
    assert.deepEqual(await bench.queue.listDead(), []);
  },

  'brings the next attempt of a pending delivery forward': async (bench) => {
    await bench.consume((_, attempt) =>
      attempt === 1
        ? { type: 'retry', at: bench.now() + 3_600_000, reason: 'http_500' }
        : { type: 'delivered' },
    );
    await bench.enqueue('hurried');
    await bench.until(async () => (await bench.attemptsOf('hurried')) === 1);

    assert.deepEqual(await bench.queue.redeliver(['hurried', 'unknown', 'hurried']), ['hurried']);
    await bench.untilRuns(2);
    assert.deepEqual(bench.runs.at(-1), { id: 'hurried', attempt: 2 });
  },

  'brings the first attempt of a pending delivery forward': async (bench) => {
    await bench.consume();
    const notBefore = bench.now() + 3_600_000;
    await bench.queue.enqueue([{ delivery: deliveryNamed('early'), notBefore }]);

    assert.deepEqual(await bench.queue.redeliver(['early']), ['early']);
    await bench.untilRuns(1);
    assert.deepEqual(bench.runs, [{ id: 'early', attempt: 1 }]);
  },

  'does not redeliver a running or delivered delivery': async (bench) => {
    let finish!: () => void;
    const attempt = new Promise<void>((resolve) => (finish = resolve));
    await bench.consume(async () => {
      await attempt;
      return { type: 'delivered' };
    });
    await bench.enqueue('busy');
    await bench.untilRuns(1);

    assert.deepEqual(await bench.queue.redeliver(['busy']), []);
    finish();
    await bench.until(async () => (await bench.receiptOf('busy')).status === 'delivered');
    assert.deepEqual(await bench.queue.redeliver(['busy']), []);
    assert.equal(bench.runs.length, 1);
  },

  'repeats the content digest of a known delivery in its receipt': async (bench) => {
    const recorded = { ...deliveryNamed('digested'), contentDigest: 'sha256:1' };
    const other = { ...deliveryNamed('digested'), contentDigest: 'sha256:2' };
    const notBefore = bench.now();
    const enqueued = [recorded, other].map((delivery) => ({ delivery, notBefore }));
    const [first, twin] = await bench.queue.enqueue(enqueued);
    assert.deepEqual(first, { id: 'digested', status: 'recorded' });
    assert.equal(digestIn(twin), 'sha256:1');

    let outcome: DeliveryOutcome = { type: 'retry', at: notBefore, reason: 'http_500' };
    await bench.consume((_, attempt) => {
      if (attempt === 2) outcome = { type: 'dead', reason: 'http_500', attempts: 2 };
      if (attempt === 1 && bench.runs.length > 2) outcome = { type: 'delivered' };
      return outcome;
    });
    await bench.until(async () => (await bench.queue.listDead()).length === 1);
    const [dead] = await bench.queue.enqueue([{ delivery: other, notBefore }]);
    assert.deepEqual([dead!.status, digestIn(dead)], ['dead', 'sha256:1']);

    await bench.queue.redeliver(['digested']);
    await bench.until(async () => (await bench.receiptOf('digested')).status === 'delivered');
    assert.equal(digestIn(await bench.receiptOf('digested')), 'sha256:1');
  },

  'repeats the attempt if the handler throws': async (bench) => {
    await bench.consume(() =>
      bench.runs.length === 1
        ? Promise.reject(new Error('the handler failed'))
        : { type: 'delivered' },
    );
    await bench.enqueue('stumbled');

    await bench.untilRuns(2, LONG_STEP);

    assert.deepEqual(bench.runs, [
      { id: 'stumbled', attempt: 1 },
      { id: 'stumbled', attempt: 1 },
    ]);
  },

  'delivers to other destinations while five hang': async (bench) => {
    let finish!: () => void;
    const hanging = new Promise<void>((resolve) => (finish = resolve));
    const delivered = new Set<string>();
    await bench.queue.consume(async ({ id }) => {
      if (!id.startsWith('healthy')) await hanging;
      delivered.add(id);
      return { type: 'delivered' };
    });
    const notBefore = bench.now();
    const to = (endpointId: string, count: number): EnqueuedDelivery[] =>
      Array.from({ length: count }, (_, index) => ({
        delivery: { ...deliveryNamed(`${endpointId}-${index}`), endpointId },
        notBefore,
      }));
    const dead = ['a', 'b', 'c', 'd', 'e'].flatMap((name) => to(`hanging-${name}`, 30));
    await bench.queue.enqueue([...dead, ...to('healthy', 10)]);

    await bench.until(() => delivered.size === 10, LONG_STEP / 10);
    finish();
  },

  'starts deliveries due at the same time in the order they were recorded': async (bench) => {
    const ids = Array.from({ length: 20 }, (_, index) => `in-order-${index}`);
    await bench.enqueue(...ids.slice(0, 10));
    await bench.enqueue(...ids.slice(10));
    await bench.consume();

    await bench.untilRuns(ids.length);

    assert.deepEqual(
      bench.runs.map(({ id }) => id),
      ids,
    );
  },

  'waits for running attempts when it stops': async (bench) => {
    let finish!: () => void;
    const attempt = new Promise<void>((resolve) => (finish = resolve));
    await bench.queue.consume(async (delivery, number) => {
      bench.runs.push({ id: delivery.id, attempt: number });
      await attempt;
      return { type: 'delivered' };
    });
    await bench.enqueue('running');
    await bench.untilRuns(1);

    let left: number | undefined;
    const stopped = bench.stop(60_000).then((count) => (left = count));
    await bench.advance(STEP);
    assert.equal(left, undefined);
    finish();

    assert.equal(await stopped, 0);
  },

  'stops at the deadline and returns the number of unfinished deliveries': async (bench) => {
    let finish!: () => void;
    const attempt = new Promise<void>((resolve) => (finish = resolve));
    await bench.queue.consume(async (delivery, number) => {
      bench.runs.push({ id: delivery.id, attempt: number });
      await attempt;
      return { type: 'delivered' };
    });
    await bench.enqueue('stuck');
    await bench.untilRuns(1);

    const stopped = bench.stop(200);
    await bench.advance(200);

    assert.equal(await stopped, 1);
    finish();
  },

  'refuses new deliveries after it was stopped': async (bench) => {
    await bench.consume();
    await bench.stop(0);

    await assert.rejects(bench.enqueue('late'), (error) => isWebhookError(error, 'shutting_down'));
  },
};

function digestIn(receipt: DeliveryReceipt | undefined): string | undefined {
  return receipt?.status === 'recorded' ? undefined : receipt?.contentDigest;
}

function deliveryNamed(id: string): WebhookDelivery {
  return {
    id,
    eventId: `event-${id}`,
    event: 'contract.checked',
    endpointId: 'receiver',
    payload: {
      kind: 'json',
      bytes: Buffer.from('{"é":"\\u0000 "}'),
      contentType: 'application/json',
    },
    createdAt: 1_767_225_600_000,
  };
}
