// Starts an application and prints the CPU time of its process in milliseconds: node bench/start/app.mjs nest|receiver|publisher
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ISSUER, SECRET } from '../event.mjs';

const OPTIONS = {
  receiver: { receiver: { path: 'hook', issuers: [{ issuer: ISSUER, secret: SECRET }] } },
  publisher: {
    publisher: {
      issuer: ISSUER,
      secret: SECRET,
      endpoints: [{ id: 'crm', url: 'https://crm.example/hook', events: ['order.*'] }],
    },
  },
};
const options = OPTIONS[process.argv[2]];

class App {}
Module({ imports: options === undefined ? [] : [await webhooks()] })(App);
const app = await NestFactory.create(App, { logger: ['error'] });
await app.listen(0, '127.0.0.1');
const { user, system } = process.cpuUsage();
console.log((user + system) / 1_000);
process.exit(0);

async function webhooks() {
  const { WebhookModule } = await import('../../dist/index.js');
  return WebhookModule.forRoot(options);
}
