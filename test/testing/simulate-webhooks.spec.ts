import { type INestApplicationContext, Injectable, Module } from '@nestjs/common';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import { describe, expect, it, jest } from '@jest/globals';
import {
  OnWebhookEvent,
  WebhookEvent,
  WebhookModule,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { PostgresQueue, PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import { SimulationError, simulateWebhooks } from 'nestjs-webhook-token/testing';
import { Pool } from 'pg';

jest.setTimeout(120_000);

const shop = { issuer: 'https://shop.example', secret: 'a-secret-for-tests-of-32-bytes-min!' };
const SEEDS = 15;
/** Never connected: the simulation replaces what uses it. */
const pool = new Pool();

/** The tables of the receiving application: rows are added in transactions. */
class Tables {
  readonly rows: string[] = [];

  async transaction(work: (tx: Tx) => Promise<void>): Promise<void> {
    const tx = new Tx();
    try {
      await work(tx);
      this.rows.push(...tx.rows);
      tx.end(true);
    } catch (error) {
      tx.end(false);
      throw error;
    }
  }
}

class Tx {
  readonly rows: string[] = [];
  end!: (isCommitted: boolean) => void;
  readonly ended = new Promise<boolean>((resolve) => (this.end = resolve));
}

@Injectable()
class InsertsInTransaction {
  constructor(private readonly tables: Tables) {}

  @OnWebhookEvent('order.paid')
  async onPaid(_data: unknown, event: WebhookEvent): Promise<void> {
    await this.tables.transaction(async (tx) => {
      tx.rows.push(event.id);
      await event.commit(tx);
    });
  }
}

@Injectable()
class InsertsAtOnce {
  constructor(private readonly tables: Tables) {}

  @OnWebhookEvent('order.paid')
  onPaid(_data: unknown, event: WebhookEvent): void {
    this.tables.rows.push(event.id);
  }
}

function shopModule(queue?: PostgresQueue): unknown {
  @Module({
    imports: [
      WebhookModule.forRoot({
        publisher: {
          ...shop,
          queue,
          endpoints: [{ id: 'billing', url: 'https://billing.example/webhooks' }],
        },
      }),
    ],
  })
  class ShopModule {}
  return ShopModule;
}

function billingModule(handlers: new (tables: Tables) => unknown, isQueued = false): unknown {
  @Module({
    imports: [
      WebhookModule.forRoot({
        receiver: {
          path: 'webhooks',
          issuers: [shop],
          replay: { store: new PostgresReplayStore(pool), lease: '10s' },
          ...(isQueued && { acknowledge: 'queued', queue: new PostgresQueue({ pool }) }),
        },
      }),
    ],
    providers: [handlers, { provide: Tables, useValue: undefined }],
  })
  class BillingModule {}
  return BillingModule;
}

const publish = async (app: INestApplicationContext, n: number): Promise<unknown> =>
  app.get(WebhookPublisher).publish('order.paid', { n }, { id: `order-${n}` });

interface Setting {
  readonly handlers: new (tables: Tables) => unknown;
  readonly queue?: PostgresQueue | undefined;
  readonly isQueued?: boolean;
  readonly adapter?: () => FastifyAdapter;
}

async function simulate(
  { handlers, queue, isQueued, adapter }: Setting,
  seeds: { seeds: number; seed?: number },
): ReturnType<typeof simulateWebhooks> {
  return simulateWebhooks(
    async (simulated) =>
      simulated(Test.createTestingModule({ imports: [shopModule(queue) as never] })).compile(),
    async (simulated, tables) => {
      const builder = Test.createTestingModule({
        imports: [billingModule(handlers, isQueued) as never],
      });
      builder.overrideProvider(Tables).useValue(tables);
      const testing = await simulated(builder).compile();
      return adapter === undefined
        ? testing.createNestApplication()
        : testing.createNestApplication(adapter());
    },
    {
      ...seeds,
      setUp: () => new Tables(),
      publish,
      check(tables, deliveries) {
        expect(tables.rows.toSorted()).toEqual(['order-0', 'order-1', 'order-2', 'order-3']);
        expect(new Set(deliveries.map(({ status }) => status))).toEqual(new Set(['delivered']));
      },
      transactionEnd: (tx) => (tx as Tx).ended,
    },
  );
}

async function failureOf(
  setting: Setting,
  seeds: { seeds: number; seed?: number },
): Promise<SimulationError> {
  const error: unknown = await simulate(setting, seeds).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(SimulationError);
  return error as SimulationError;
}

const durable = (): PostgresQueue => new PostgresQueue({ pool });

describe('simulateWebhooks', () => {
  it.each([
    ['on Express', {}],
    ['on Fastify', { adapter: () => new FastifyAdapter() }],
    ['with a queue', { isQueued: true }],
  ])('finds nothing in a receiver that commits with its record, %s', async (_, setting) => {
    const report = await simulate(
      { handlers: InsertsInTransaction, queue: durable(), ...setting },
      { seeds: SEEDS },
    );

    expect(report.seeds).toBe(SEEDS);
    expect(report.faults).toBeGreaterThan(2 * SEEDS);
  });

  it('finds an effect that is repeated, and shrinks its schedule', async () => {
    const setting = { handlers: InsertsAtOnce, queue: durable() };
    const { seed, invariant, faults, message, trace } = await failureOf(setting, { seeds: 100 });

    expect(invariant).toBe('check');
    expect(faults.length).toBeLessThan(6);
    expect(message).toContain(`{ seed: ${seed}, seeds: 1 }`);
    expect(trace.join('\n')).toContain('FAULT');

    const again = await failureOf(setting, { seeds: 1, seed });
    expect(again.trace).toEqual(trace);
  });

  it('finds that a queue in memory loses events', async () => {
    const { invariant } = await failureOf({ handlers: InsertsInTransaction }, { seeds: 100 });

    expect(invariant).toBe('an accepted event is delivered or dead');
  });

  it('rejects an option that it does not know', async () => {
    const wrong = { publish, sedes: 3 } as never;

    await expect(simulateWebhooks(undefined as never, undefined as never, wrong)).rejects.toThrow(
      'did you mean "seeds"?',
    );
  });
});
