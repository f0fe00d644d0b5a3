import { NestFactory } from '@nestjs/core';
import { answerQuestions } from '../answer-questions.js';
import { AppModule } from './app.module.js';
import { ParcelService } from './parcel.service.js';

async function bootstrap(): Promise<void> {
  // Publishing needs no HTTP server. The demo prints the results, so Nest does not log.
  const app = await NestFactory.createApplicationContext(AppModule, {
    logger: false,
    abortOnError: false,
  });
  answerQuestions(app, app.get(ParcelService), process.env.DEMO_ISSUER!);
}

await bootstrap();
