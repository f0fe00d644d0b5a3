import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { EventTransmitter } from '../fixtures/event-transmitter.js';

const nest = import.meta.resolve('@nestjs/core');
const library = new URL('../../dist/', import.meta.url).href;

/** An application that only polls, without an HTTP server. */
const application = (url: string): string => `
  const { NestFactory } = await import('${nest}');
  const { WebhookModule } = await import('${library}index.js');
  const { securityEvents } = await import('${library}senders/index.js');
  const sender = securityEvents({
    issuer: 'https://idp.example',
    audience: 'https://shop.example',
    secret: 'a secret of the test that is long enough',
    poll: { url: '${url}', interval: '1s', allowHttp: true, allowPrivateNetworks: true },
  });
  class App {}
  const imports = [WebhookModule.forRoot({ receiver: { sender } })];
  const app = await NestFactory.createApplicationContext({ module: App, imports }, { logger: ['error'] });
  process.once('SIGTERM', () => app.close());
`;

let transmitter: EventTransmitter;

beforeEach(async () => {
  transmitter = await EventTransmitter.start();
});
afterEach(async () => transmitter.close());

it('polls until it is closed, and then ends by itself', async () => {
  const args = ['--no-warnings', '--input-type=module', '--eval', application(transmitter.url)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
  const ended = once(child, 'close').then(() => 'ended' as const);
  (await transmitter.next()).answer();
  const second = await Promise.race([transmitter.next(), ended]);
  child.kill();

  expect(second).not.toBe('ended');
  await ended;
  expect(child.exitCode).toBe(0);
});
