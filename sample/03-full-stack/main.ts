import { ValidationPipe, type DynamicModule, type INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ShopModule } from './shop/shop.module.js';
import { openStorage } from './storage.js';
import { WarehouseModule } from './warehouse/warehouse.module.js';

const { PORT = '3002', WAREHOUSE_PORT = '3003' } = process.env;

async function listen(module: DynamicModule, port: string): Promise<INestApplication> {
  const app = await NestFactory.create(module);
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  app.enableShutdownHooks();
  return app.listen(port, '127.0.0.1').then(() => app);
}

const shopUrl = `http://127.0.0.1:${PORT}`;
const warehouse = await listen(WarehouseModule.register(`${shopUrl}/webhooks`), WAREHOUSE_PORT);
const warehouseUrl = await warehouse.getUrl();
const storage = await openStorage();
const shop = await listen(ShopModule.register(storage, shopUrl, warehouseUrl), PORT);

console.log(`The shop:      ${await shop.getUrl()}/`);
console.log(
  `Its console:   ${await shop.getUrl()}/webhooks/console/ (admin, ${process.env.ADMIN_PASSWORD})`,
);
console.log(`The warehouse: ${warehouseUrl}/`);
