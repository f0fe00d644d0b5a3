import { NestFactory } from '@nestjs/core';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { AppModule } from './app.module';

async function bootstrap() {
  const app = await NestFactory.create(AppModule);
  await app.listen(process.env.PORT ?? 3000, '127.0.0.1');
  console.log(`listening ${await app.getUrl()}`);
  const sent = await app
    .get(WebhookPublisher)
    .send(process.env.SINK!, 'invoice.paid', { id: 'i1' });
  console.log(`sent ${sent.status}`);
}
void bootstrap();
