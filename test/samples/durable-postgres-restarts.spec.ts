import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { send } from '../fixtures/http-client.js';
import { OwnServer, ownPostgres } from '../fixtures/own-server.js';
import { Customers } from './customers.js';
import { RestartedShop } from './restarted-shop.js';

jest.setTimeout(600_000);

interface Order {
  readonly id: string;
  readonly customer: string;
}

interface Parcel {
  readonly orderId: string;
  readonly customer: string;
}

async function listOf<T>(origin: string, path: string): Promise<readonly T[]> {
  const { status, json } = await send(origin, { method: 'GET', path });
  expect(status).toBe(200);
  return json as unknown as readonly T[];
}

function linesOf(orders: readonly Order[]): readonly string[] {
  return orders.map(({ id, customer }) => `${id} of ${customer}`).toSorted();
}

const program = ownPostgres();
if (program === undefined) {
  process.stderr.write('Skipped the restart tests of sample 04: initdb was not found.\n');
}
const describeRestarts = program === undefined ? describe.skip : describe;

describeRestarts('sample 04-durable-postgres, restarted under load with its database', () => {
  let server: OwnServer;
  let sample: RestartedShop;
  let customers: Customers;
  beforeAll(async () => {
    server = await OwnServer.start(program!);
    sample = new RestartedShop(server);
    await sample.start();
    customers = new Customers(sample, 3);
  });
  afterAll(async () => {
    await customers.leave();
    await sample.stop();
    await server.remove();
  });

  const orders = async (): Promise<readonly Order[]> => listOf(sample.originOf('shop'), '/orders');
  const parcels = async (): Promise<readonly Order[]> => {
    const packed = await listOf<Parcel>(sample.originOf('receiver'), '/parcels');
    return packed.map(({ orderId, customer }) => ({ id: orderId, customer }));
  };

  /** Waits until every order is packed; this can take longer than the leases of the killed processes. */
  async function untilPacked(): Promise<void> {
    const patience = Date.now() + 120_000;
    const { length } = await orders();
    while ((await parcels()).length < length && Date.now() < patience) await pause(250);
  }

  it('packs every committed order once, and no order that was rolled back', async () => {
    // The leases of a killed process expire while the others are restarted.
    const disturbances = [
      async () => sample.restart('shop', 'SIGKILL'),
      async () => sample.restart('receiver', 'SIGKILL'),
      async () => sample.restartDatabase(),
      async () => sample.restartAll(),
      async () => sample.restart('receiver', 'SIGKILL'),
      async () => sample.restart('shop', 'SIGKILL'),
      async () => sample.restartDatabase(),
      async () => sample.restart('receiver', 'SIGTERM'),
      async () => sample.restart('shop', 'SIGTERM'),
    ];
    for (const disturb of disturbances) {
      await customers.place(30);
      await disturb();
      expect(sample.crashes).toEqual([]);
    }
    await customers.place(30);
    await customers.leave();
    await untilPacked();
    const committed = await orders();
    const known = new Map(committed.map(({ id, customer }) => [id, customer]));

    expect([...customers.acknowledged].filter(([id, name]) => known.get(id) !== name)).toEqual([]);
    expect(committed.filter(({ customer }) => customer.startsWith('unpaid'))).toEqual([]);
    expect(linesOf(await parcels())).toEqual(linesOf(committed));
    expect(customers.rolledBack).toBeGreaterThan(0);
    expect(customers.unknown).toBeGreaterThan(0);
    expect(sample.crashes).toEqual([]);
    expect(sample.restarts).toEqual({
      'shop SIGKILL': 3,
      'shop SIGTERM': 1,
      'receiver SIGKILL': 3,
      'receiver SIGTERM': 1,
      'database SIGKILL': 3,
    });
  });
});
