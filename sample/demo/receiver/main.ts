import { NestFactory } from '@nestjs/core';
import { answerQuestions } from '../answer-questions.js';
import { AppModule } from './app.module.js';
import { Logbook } from './logbook.js';

async function bootstrap(): Promise<void> {
  // The demo prints the results, so Nest does not log; start-up errors are thrown.
  const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false });
  await app.listen(0, '127.0.0.1');
  answerQuestions(app, app.get(Logbook), `${await app.getUrl()}/webhooks`);
}

await bootstrap();
