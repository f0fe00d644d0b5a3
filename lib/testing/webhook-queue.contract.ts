import assert from 'node:assert/strict';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import type { ContractCase } from './contract-case.interface.js';
import { TestClock } from './test-clock.js';
import {
  Bench,
  DELIVERED,
  gate,
  LONG_STEP,
  PAYLOADS_KEPT,
  type QueueRules,
  STEP,
} from './webhook-queue.bench.js';
import { HISTORY_RULES, PAYLOAD_RULES } from './webhook-queue.history-rules.js';
import { LIMIT_RULES, limitFencingRules } from './webhook-queue.limit-rules.js';
import { ORDER_RULES } from './webhook-queue.order-rules.js';
import { RUN_RULES } from './webhook-queue.run-rules.js';

/** The queue under test. */
export interface WebhookQueueContractOptions {
  /** Creates an empty queue that uses this clock, or the clock of its server. */
  readonly create: (clock: WebhookClock) => WebhookQueue | Promise<WebhookQueue>;
  /**
   * Lets time pass; default: advances the clock that `create` received. For a queue that uses the clock of its server,
   * wait in real time.
   */
  readonly advance?: ((ms: number) => Promise<void>) | undefined;
  /**
   * Creates an empty queue that uses this clock, and drops the payloads of deliveries so many milliseconds after they were delivered.
   * Leave it out only for a queue without such an option.
   */
  readonly createDropping?:
    | ((clock: WebhookClock, keepPayloads: number) => WebhookQueue | Promise<WebhookQueue>)
    | undefined;
  /**
   * Ends the lease of a running delivery, as if its worker had stalled, so that the queue runs it again. Leave it out
   * only for a queue without leases.
   */
  readonly expireLease?: ((queue: WebhookQueue, id: string) => Promise<void>) | undefined;
}

/** The contract of {@link WebhookQueue}, as cases for any test framework. */
export function webhookQueueContract(options: WebhookQueueContractOptions): ContractCase[] {
  const { advance, create, createDropping, expireLease } = options;
  const rules = {
    ...RUN_RULES,
    ...HISTORY_RULES,
    ...ORDER_RULES,
    ...LIMIT_RULES,
    ...(expireLease && { ...fencingRules(expireLease), ...limitFencingRules(expireLease) }),
  };
  return [
    ...casesOf(rules, create, advance),
    ...(createDropping === undefined
      ? []
      : casesOf(PAYLOAD_RULES, (clock) => createDropping(clock, PAYLOADS_KEPT))),
  ];
}

/** @param advance - for a queue that uses the clock of its server; default: advances the clock that `create` gets */
function casesOf(
  rules: QueueRules,
  create: WebhookQueueContractOptions['create'],
  advance?: WebhookQueueContractOptions['advance'],
): ContractCase[] {
  return Object.entries(rules).map(([name, rule]) => ({
    name,
    run: async () => {
      const clock = new TestClock();
      const queue = await create(clock);
      const bench = new Bench(
        queue,
        advance === undefined ? clock : undefined,
        advance ?? ((ms) => clock.advance(ms)),
      );
      try {
        await rule(bench);
      } finally {
        await bench.close();
      }
    },
  }));
}

function fencingRules(
  expireLease: NonNullable<WebhookQueueContractOptions['expireLease']>,
): QueueRules {
  return {
    'records no outcome of a worker whose lease has expired': async (bench) => {
      const { opened, open } = gate();
      const stalledEnded = gate();
      await bench.consume(async (_, attempt) => {
        if (bench.runs.length > 1) return DELIVERED;
        await opened;
        setImmediate(stalledEnded.open);
        const reason = 'timeout';
        const outcome = { type: 'dead', reason, attempts: attempt } as const;
        return { outcome, attempt: bench.attempt(attempt, { reason }) };
      });
      await bench.enqueue('stalled');
      await bench.untilRuns(1);

      await expireLease(bench.queue, 'stalled');
      await bench.untilRuns(2, LONG_STEP);
      await bench.untilState('stalled', 'delivered 1');
      open();
      await stalledEnded.opened;
      await bench.advance(STEP * 5);

      assert.deepEqual(bench.runs[1], { id: 'stalled', attempt: 1 });
      assert.equal(await bench.stateOf('stalled'), 'delivered 1');
      const attempts = await bench.queue.attempts('stalled');
      const reasons = attempts.map(({ reason }) => reason);
      assert.deepEqual(reasons, [undefined]);
    },
  };
}
