import { NestFactory } from '@nestjs/core';
import { PgliteQueue } from 'nestjs-webhook-token/postgres';
import { ShopModule } from './shop.module.js';
import { StockWebhooks } from './stock-webhooks.js';
import { Warehouse } from './warehouse.js';
import { WarehouseModule } from './warehouse.module.js';

async function bootstrap(): Promise<void> {
  const { PORT = '3008', STORAGE_DIRECTORY: directory = 'build/08-stock-in-order' } = process.env;
  const shop = await NestFactory.create(ShopModule, { logger: ['warn', 'error'] });
  await shop.listen(PORT, '127.0.0.1');
  const queue = new PgliteQueue({ directory, pollInterval: '100ms' });
  const url = `${await shop.getUrl()}/webhooks`;
  const warehouse = await NestFactory.createApplicationContext(
    WarehouseModule.register(queue, url),
    { logger: ['warn', 'error'] },
  );
  await warehouse.get(Warehouse).sellOut();
  await shop.get(StockWebhooks).soldOut;
  await warehouse.close();
  await shop.close();
  console.log(shop.get(StockWebhooks).summary);
}

await bootstrap();
