import { NestFactory } from '@nestjs/core';
import { answerQuestions } from '../answer-questions.js';
import { AppModule } from './app.module.js';
import { Logbook } from './logbook.js';

async function bootstrap(): Promise<void> {
  // Silent, as the demo tells the story; what stops the start-up is thrown, and so printed.
  const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false });
  await app.listen(0, '127.0.0.1');
  answerQuestions(app, app.get(Logbook), `${await app.getUrl()}/webhooks`);
}

await bootstrap();
