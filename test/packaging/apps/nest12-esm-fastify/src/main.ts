import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { AppModule } from './app.module.js';

const app = await NestFactory.create<NestFastifyApplication>(AppModule, new FastifyAdapter());
await app.listen(process.env.PORT ?? 3000, '127.0.0.1');
console.log(`listening ${await app.getUrl()}`);
const sent = await app.get(WebhookPublisher).send(process.env.SINK!, 'invoice.paid', { id: 'i1' });
console.log(`sent ${sent.status}`);
