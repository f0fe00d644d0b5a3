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

/** The tables of an application: rows are added in transactions. */
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

interface Order {
  readonly n: number;
}

const idOf = ({ n }: Order): string => `order-${n}`;

@Injectable()
class InsertsInTransaction {
  constructor(private readonly tables: Tables) {}

  @OnWebhookEvent('order.paid')
  async onPaid(order: Order, event: WebhookEvent): Promise<void> {
    await this.tables.transaction(async (tx) => {
      tx.rows.push(idOf(order));
      await event.commit(tx);
    });
  }
}

@Injectable()
class InsertsAtOnce {
  constructor(private readonly tables: Tables) {}

  @OnWebhookEvent('order.paid')
  onPaid(order: Order): void {
    this.tables.rows.push(idOf(order));
  }
}

@Injectable()
class InsertsBeforeTransaction {
  constructor(private readonly tables: Tables) {}

  @OnWebhookEvent('order.paid')
  async onPaid(order: Order, event: WebhookEvent): Promise<void> {
    this.tables.rows.push(idOf(order));
    await this.tables.transaction(async (tx) => event.commit(tx));
  }
}

function shopModule(queue?: PostgresQueue): unknown {
  @Module({
    imports: [
      WebhookModule.forRoot({
        publisher: {
          ...shop,
          queue,
          endpoints: [
            { id: 'billing', url: 'https://billing.example/webhooks', events: ['order.*'] },
          ],
        },
      }),
    ],
    providers: [{ provide: Tables, useValue: undefined }],
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

type Simulate = Parameters<Parameters<typeof simulateWebhooks>[0]>[0];
type Publish = (app: INestApplicationContext, n: number) => Promise<unknown>;

const publish: Publish = async (app, n) =>
  app.get(WebhookPublisher).publish('order.paid', { n }, { id: idOf({ n }) });

const publishWithoutId: Publish = async (app, n) =>
  app.get(WebhookPublisher).publish('order.paid', { n });

const placeAndPublish: Publish = async (app, n) => {
  const tables = app.get(Tables);
  const id = idOf({ n });
  if (tables.rows.includes(id)) return;
  await tables.transaction(async (tx) => {
    tx.rows.push(id);
    await app.get(WebhookPublisher).publish('order.paid', { n }, { id, tx });
  });
};

const placeThenPublish: Publish = async (app, n) => {
  const tables = app.get(Tables);
  const id = idOf({ n });
  if (tables.rows.includes(id)) return;
  await tables.transaction(async (tx) => void tx.rows.push(id));
  await publish(app, n);
};

interface Setting {
  readonly handlers: new (tables: Tables) => unknown;
  readonly queue?: PostgresQueue | undefined;
  readonly publish?: Publish;
  readonly isQueued?: boolean;
  readonly adapter?: () => FastifyAdapter;
}

async function simulate(
  { handlers, queue, isQueued, adapter, ...setting }: Setting,
  seeds: { seeds: number; seed?: number },
): ReturnType<typeof simulateWebhooks> {
  return simulateWebhooks(
    async (simulated, { orders }) => {
      const builder = Test.createTestingModule({ imports: [shopModule(queue) as never] });
      builder.overrideProvider(Tables).useValue(orders);
      return simulated(builder).compile();
    },
    async (simulated, { invoices }) => {
      const builder = Test.createTestingModule({
        imports: [billingModule(handlers, isQueued) as never],
      });
      builder.overrideProvider(Tables).useValue(invoices);
      const testing = await simulated(builder).compile();
      return adapter === undefined
        ? testing.createNestApplication()
        : testing.createNestApplication(adapter());
    },
    {
      ...seeds,
      publish: setting.publish ?? publish,
      setUp: () => ({ orders: new Tables(), invoices: new Tables() }),
      check({ invoices }, deliveries) {
        expect(invoices.rows.toSorted()).toEqual(['order-0', 'order-1', 'order-2', 'order-3']);
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
    ['with events in the transactions of orders', { publish: placeAndPublish }],
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

  it.each([
    ['an effect that is not idempotent', { handlers: InsertsAtOnce }],
    ['an effect outside the transaction of its event', { handlers: InsertsBeforeTransaction }],
    ['an event that is published after the commit of its order', { publish: placeThenPublish }],
    ['an event that is published without an id', { publish: publishWithoutId }],
  ])('finds %s, and prints few steps', async (_, fault) => {
    const setting = { handlers: InsertsInTransaction, queue: durable(), ...fault };
    const { seed, invariant, faults, trace } = await failureOf(setting, { seeds: 25 });

    expect(seed).toBeLessThanOrEqual(25);
    expect(invariant).toBe('check');
    expect(faults.length).toBeLessThan(5);
    expect(trace.length).toBeLessThan(80);
  });

  it('finds that a queue in memory loses events', async () => {
    const { invariant } = await failureOf({ handlers: InsertsInTransaction }, { seeds: 100 });

    expect(invariant).toBe('an accepted event is delivered or dead');
  });

  it('ends at once if publish rejects without a failure, and quotes the error', async () => {
    const publishBigInt: Publish = async (app, n) =>
      app.get(WebhookPublisher).publish('order.paid', { n: BigInt(n) }, { id: idOf({ n }) });
    const setting = { handlers: InsertsInTransaction, queue: durable(), publish: publishBigInt };
    const { invariant, message, faults, trace, cause } = await failureOf(setting, { seeds: 1 });

    expect(invariant).toBe('everything ends');
    expect(cause).toMatchObject({ name: 'WebhookDeliveryError', code: 'invalid_data' });
    expect(message).toContain((cause as Error).message);
    expect(faults).toEqual([]);
    expect(trace.length).toBeLessThan(10);
  });

  it('repeats a publish that rejects because of a failure, whatever its error', async () => {
    let rejections = 0;
    const publishOrSay: Publish = async (app, n) =>
      publish(app, n).catch(() => {
        rejections++;
        throw new Error('try again later');
      });
    const setting = { handlers: InsertsInTransaction, queue: durable(), publish: publishOrSay };
    const report = await simulate(setting, { seeds: SEEDS });

    expect(report.seeds).toBe(SEEDS);
    expect(rejections).toBeGreaterThan(0);
  });

  it('refuses a receiver that takes no requests', async () => {
    const testing = (simulated: Simulate, module: unknown): Promise<INestApplicationContext> =>
      simulated(Test.createTestingModule({ imports: [module as never] })).compile();

    await expect(
      simulateWebhooks(
        async (simulated) => testing(simulated, shopModule(durable())),
        async (simulated) => testing(simulated, billingModule(InsertsAtOnce)),
        { publish, seeds: 1 },
      ),
    ).rejects.toThrow(
      'simulateWebhooks: the receiver takes no requests; return testing.createNestApplication() from its function',
    );
  });

  it.each<[string, Publish]>([
    ['publishes nothing', async () => {}],
    [
      'publishes an event that no endpoint takes',
      async (app, n) => app.get(WebhookPublisher).publish('refund.paid', { n }),
    ],
  ])('refuses an application that %s', async (_, publishing) => {
    const testing = (simulated: Simulate, module: unknown) =>
      simulated(Test.createTestingModule({ imports: [module as never] })).compile();
    const running = simulateWebhooks(
      async (simulated) => testing(simulated, shopModule(durable())),
      async (simulated) =>
        (await testing(simulated, billingModule(InsertsAtOnce))).createNestApplication(),
      { publish: publishing, seeds: 2 },
    );

    await expect(running).rejects.toThrow('simulateWebhooks: no delivery was recorded');
  });

  it('rejects an option that it does not know', async () => {
    const wrong = { publish, sedes: 3 } as never;

    await expect(simulateWebhooks(undefined as never, undefined as never, wrong)).rejects.toThrow(
      'did you mean "seeds"?',
    );
  });
});
