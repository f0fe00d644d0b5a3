import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { play } from './play.js';

async function bootstrap(): Promise<void> {
  const app = await NestFactory.create(AppModule);
  app.enableShutdownHooks();
  // Loopback only: the samples' secrets are public.
  await app.listen(process.env.PORT ?? 3007, '127.0.0.1');
  const origin = await app.getUrl();
  console.log(`Receiving webhooks at ${origin}/webhooks`);
  await play(origin);
}

await bootstrap();
