import { ValidationPipe, type DynamicModule, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import { createOrders } from './shop/orders.table.js';
import { ShopModule } from './shop/shop.module.js';
import { openStorage, type Storage } from './storage.js';
import { createParcels } from './warehouse/parcels.table.js';
import { WarehouseModule } from './warehouse/warehouse.module.js';

const { DATABASE_URL, PORT = '3004', WAREHOUSE_PORT = '3005' } = process.env;

async function startWarehouse(storage: Storage): Promise<string> {
  await createParcels(storage.database);
  const store = new PostgresReplayStore(storage.client, { schema: 'warehouse' });
  await store.migrate();
  const app = await listen(WarehouseModule.register(storage, store), WAREHOUSE_PORT);
  const url = `${await app.getUrl()}/webhooks`;
  console.log(`The warehouse receives webhooks at ${url}`);
  return url;
}

async function startShop(storage: Storage, warehouse: string): Promise<void> {
  await createOrders(storage.database);
  const app = await listen(ShopModule.register(storage, warehouse), PORT);
  console.log(`The shop accepts orders at ${await app.getUrl()}/orders`);
}

async function listen(module: DynamicModule, port: string): Promise<INestApplication> {
  const app = await NestFactory.create(module);
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  app.enableShutdownHooks();
  return app.listen(port, '127.0.0.1').then(() => app);
}

const role = process.argv[3] ?? 'both';
if (role !== 'both' && !DATABASE_URL) {
  console.error('The embedded database supports one process only: set DATABASE_URL to start two.');
  process.exit(1);
}
const storage = await openStorage();
const { WAREHOUSE_URL = `http://127.0.0.1:${WAREHOUSE_PORT}/webhooks` } = process.env;
const warehouse = role === 'shop' ? WAREHOUSE_URL : await startWarehouse(storage);
if (role !== 'receiver') await startShop(storage, warehouse);
