import { randomUUID } from 'node:crypto';
import { NestFactory } from '@nestjs/core';
import { Redis } from 'ioredis';
import { AppModule } from './app.module.js';
import { requireRedis } from './redis-connection.js';
import { sendToAll } from './sender.js';

const EVENTS = 5;

async function bootstrap(): Promise<void> {
  const url = await requireRedis();
  const replicas = await Promise.all(
    ['A', 'B'].map(async (name) => {
      // Each replica has its own connection, as in separate processes.
      const redis = new Redis(url, { maxRetriesPerRequest: 0, socketTimeout: 5_000 });
      const app = await NestFactory.create(AppModule.forReplica(name, redis), {
        logger: ['warn', 'error'],
      });
      await app.listen(0, '127.0.0.1');
      return { app, redis, url: `${await app.getUrl()}/webhooks` };
    }),
  );
  for (let number = 1; number <= EVENTS; number++) {
    const id = `parcel-${number}-${randomUUID().slice(0, 8)}`;
    const answers = await sendToAll(
      id,
      replicas.map(({ url }) => url),
    );
    console.log(`${id} was sent to both replicas, which say: ${answers.join('; ')}`);
  }
  await Promise.all(replicas.map(({ app }) => app.close()));
  for (const { redis } of replicas) redis.disconnect();
}

await bootstrap();
