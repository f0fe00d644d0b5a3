import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { requireRedis } from './redis-connection.js';

async function bootstrap(): Promise<void> {
  await requireRedis();
  const app = await NestFactory.create(AppModule);
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  app.enableShutdownHooks();
  await app.listen(process.env.PORT ?? 3006, '127.0.0.1');
  console.log(
    `Accepting invoices at ${await app.getUrl()}/invoices; /queues lists their deliveries`,
  );
}

await bootstrap();
