import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

async function bootstrap(): Promise<void> {
  const app = await NestFactory.create(AppModule);
  app.enableShutdownHooks();
  // Loopback only: the samples' secrets are public.
  await app.listen(process.env.PORT ?? 3000, '127.0.0.1');
  console.log(`Receiving webhooks at ${await app.getUrl()}/webhooks`);
}

await bootstrap();
