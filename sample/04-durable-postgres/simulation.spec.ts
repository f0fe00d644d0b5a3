import { randomUUID } from 'node:crypto';
import { type INestApplicationContext, ValidationPipe } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { describe, expect, it } from '@jest/globals';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { PostgresQueue, PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import { simulateWebhooks } from 'nestjs-webhook-token/testing';
import { Pool } from 'pg';
import { orders } from './shop/orders.table.js';
import { OrdersService } from './shop/orders.service.js';
import { ShopModule } from './shop/shop.module.js';
import { DATABASE } from './storage.constants.js';
import type { Storage } from './storage.js';
import { parcels } from './warehouse/parcels.table.js';
import { WarehouseModule } from './warehouse/warehouse.module.js';

const SEEDS = 40;
const EVENTS = 4;

type Row = Readonly<Record<string, unknown>>;

/** The tables of the sample in memory, as far as it uses the interface of Drizzle. The first column is the primary key. */
class Tables {
  private readonly rows = new Map<object, Map<string, Row>>();

  async transaction(work: (tx: Transaction) => Promise<void>): Promise<void> {
    const tx = new Transaction();
    try {
      await work(tx);
      for (const [table, row] of tx.inserted) this.add(table, row);
      tx.end(true);
    } catch (error) {
      tx.end(false);
      throw error;
    }
  }

  insert(table: object): { values(row: Row): { onConflictDoNothing(): void } } {
    return {
      values: (row) => {
        this.add(table, row);
        return { onConflictDoNothing() {} };
      },
    };
  }

  keysOf(table: object): string[] {
    return [...(this.rows.get(table)?.keys() ?? [])].toSorted();
  }

  private add(table: object, row: Row): void {
    const rows = this.rows.get(table) ?? new Map<string, Row>();
    this.rows.set(table, rows);
    const key = String(Object.values(row)[0]);
    if (!rows.has(key)) rows.set(key, row);
  }
}

class Transaction {
  readonly inserted: [table: object, row: Row][] = [];
  end!: (isCommitted: boolean) => void;
  readonly ended = new Promise<boolean>((resolve) => (this.end = resolve));

  insert(table: object): { values(row: Row): void } {
    return { values: (row) => void this.inserted.push([table, row]) };
  }
}

/** @param place - places an order; a customer whose order has no answer places another one */
async function simulateSample(
  place: (app: INestApplicationContext) => Promise<unknown>,
): ReturnType<typeof simulateWebhooks> {
  process.env['SHOP_ISSUER'] = 'https://shop.example';
  process.env['SHOP_SECRET'] = 'a-secret-for-tests-of-32-bytes-min!';
  // Never connected: the simulation replaces what uses it.
  const pool = new Pool();
  const storageOf = (tables: Tables): Storage => ({
    database: tables as unknown as Storage['database'],
    queue: new PostgresQueue({ pool }),
    client: pool,
  });

  return simulateWebhooks(
    async (simulate, tables) => {
      const shop = ShopModule.register(storageOf(tables), 'http://127.0.0.1/webhooks');
      return simulate(Test.createTestingModule({ imports: [shop] })).compile();
    },
    async (simulate, tables) => {
      const warehouse = WarehouseModule.register(storageOf(tables), new PostgresReplayStore(pool));
      const testing = await simulate(Test.createTestingModule({ imports: [warehouse] })).compile();
      return testing.createNestApplication().useGlobalPipes(new ValidationPipe());
    },
    {
      seeds: SEEDS,
      events: EVENTS,
      setUp: () => new Tables(),
      publish: place,
      check(tables) {
        expect(tables.keysOf(parcels)).toEqual(tables.keysOf(orders));
        expect(tables.keysOf(orders).length).toBeGreaterThanOrEqual(EVENTS);
      },
      transactionEnd: (tx) => (tx as Transaction).ended,
    },
  );
}

describe('the shop and the warehouse, simulated', () => {
  it('packs each order once, whatever fails', async () => {
    const { seeds, faults } = await simulateSample((app) =>
      app.get(OrdersService).create({ customer: 'Ada', total: 4200 }, true),
    );

    expect(seeds).toBe(SEEDS);
    expect(faults).toBeGreaterThan(2 * SEEDS);
  });

  it('would pack orders that do not exist if it published outside the transaction', async () => {
    const failure = simulateSample(async (app) => {
      const order = { id: randomUUID(), customer: 'Ada', total: 4200 };
      await app.get<Tables>(DATABASE).transaction(async (tx) => {
        tx.insert(orders).values(order);
        await app.get(WebhookPublisher).publish('order.created', order);
      });
    });

    await expect(failure).rejects.toMatchObject({
      name: 'SimulationError',
      invariant: 'check',
      faults: [expect.stringContaining('deliveries.enqueue')],
    });
  });
});
