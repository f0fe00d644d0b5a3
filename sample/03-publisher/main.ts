import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

async function bootstrap(): Promise<void> {
  const app = await NestFactory.create(AppModule);
  app.useGlobalPipes(new ValidationPipe({ whitelist: true }));
  // On shutdown, due deliveries are still made.
  app.enableShutdownHooks();
  await app.listen(process.env.PORT ?? 3002, '127.0.0.1');
  console.log(`The shop accepts orders at ${await app.getUrl()}/orders`);
}

await bootstrap();
