import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Pool } from 'pg';
import { send, type Answer } from '../fixtures/http-client.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

type Env = Readonly<Record<string, string>>;

const { env: SHOP } = new Sender('shop');
const FREE_PORTS = { PORT: '0', WAREHOUSE_PORT: '0' };

function start(env: Env, ...role: string[]): SampleProcess {
  const args = ['sample/start.mjs', '04-durable-postgres', ...role];
  return SampleProcess.run(args, { ...SHOP, ...FREE_PORTS, ...env });
}

async function originOf(sample: SampleProcess, role: 'shop' | 'warehouse'): Promise<string> {
  const [, origin] = await sample.printed(
    new RegExp(`The ${role} .*(http://127\\.0\\.0\\.1:\\d+)`),
  );
  return origin!;
}

async function placeOrder(origin: string, query = ''): Promise<Answer> {
  const body = JSON.stringify({ customer: 'Ada', total: 4200 });
  return send(origin, { path: `/orders${query}`, body });
}

async function listOf(origin: string, path: string): Promise<unknown[]> {
  const { json } = await send(origin, { method: 'GET', path });
  return json as unknown as unknown[];
}

/** Behaviour on both databases. */
function placesOrders(env: () => Env): void {
  let sample: SampleProcess;
  let shop: string;
  let warehouse: string;

  beforeAll(async () => {
    sample = start(env());
    warehouse = await originOf(sample, 'warehouse');
    shop = await originOf(sample, 'shop');
  });
  afterAll(async () => sample.stop());

  it('packs an order, but not one whose payment failed', async () => {
    const failed = await placeOrder(shop, '?fail=1');
    const { status, json } = await placeOrder(shop);
    const id = json!['id'] as string;
    await sample.printed(new RegExp(`Order ${id} is packed for Ada`));

    expect([failed.status, status]).toEqual([409, 201]);
    expect(await listOf(shop, '/orders')).toEqual([{ id, customer: 'Ada', total: 4200 }]);
    expect(await listOf(warehouse, '/parcels')).toEqual([{ orderId: id, customer: 'Ada' }]);
  });
}

describe('sample 04-durable-postgres, on the embedded database', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'webhooks-'));
  });
  afterAll(async () => rm(directory, { recursive: true, force: true }));

  placesOrders(() => ({ STORAGE_DIRECTORY: directory }));

  it('refuses to start as a second process', async () => {
    const shop = start({ STORAGE_DIRECTORY: directory }, 'shop');

    expect(await shop.exitCode()).toBe(1);
    expect(shop.output).toMatch(/set DATABASE_URL/);
  });
});

/** Creates a database for the test, since a shop delivers every pending event in its database. */
function ownDatabase(): () => Env {
  const url = new URL(urlOf('PostgreSQL'));
  const name = `test_${randomBytes(6).toString('hex')}`;
  const server = new Pool({ connectionString: url.href });
  beforeAll(async () => {
    await server.query(`CREATE DATABASE ${name}`);
    url.pathname = name;
  });
  afterAll(async () => {
    await server.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await server.end();
  });
  return () => ({ DATABASE_URL: url.href });
}

const describeOnServer = await describeWith('PostgreSQL');

describeOnServer('sample 04-durable-postgres, on PostgreSQL', () => {
  placesOrders(ownDatabase());
});

describeOnServer('sample 04-durable-postgres, as two processes', () => {
  const env = ownDatabase();

  it('keeps pending deliveries while both processes are restarted', async () => {
    const first = start(env(), 'receiver');
    const warehouse = await originOf(first, 'warehouse');
    await first.stop();
    const addresses = {
      ...env(),
      WAREHOUSE_PORT: new URL(warehouse).port,
      WAREHOUSE_URL: `${warehouse}/webhooks`,
    };

    const shop = start(addresses, 'shop');
    const { json } = await placeOrder(await originOf(shop, 'shop'));
    await shop.stop();

    const receiver = start(addresses, 'receiver');
    await originOf(receiver, 'warehouse');
    const again = start(addresses, 'shop');
    await receiver.printed(new RegExp(`Order ${json!['id']} is packed`));
    await Promise.all([again.stop(), receiver.stop()]);

    expect(receiver.lines.filter((line) => line.includes('is packed'))).toHaveLength(1);
  });
});
