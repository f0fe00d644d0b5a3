import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { AppModule } from './app.module.js';

async function bootstrap(): Promise<void> {
  const app = await NestFactory.create<NestFastifyApplication>(AppModule, new FastifyAdapter());
  app.enableShutdownHooks();
  // Loopback only: the samples' secrets are public.
  await app.listen(process.env.PORT ?? 3001, '127.0.0.1');
  const url = await app.getUrl();
  console.log(`Receiving webhooks at ${url}/webhooks/warehouse and ${url}/payments/webhooks`);
}

await bootstrap();
