import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

async function bootstrap(): Promise<void> {
  const app = await NestFactory.create(AppModule);
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  // On shutdown, the publisher completes the deliveries that are due.
  app.enableShutdownHooks();
  await app.listen(process.env.PORT ?? 3002, '127.0.0.1');
  console.log(`Accepting orders at ${await app.getUrl()}/orders`);
}

await bootstrap();
