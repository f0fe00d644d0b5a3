import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, it } from '@jest/globals';
import { ExpressAdapter } from '@nestjs/platform-express';
import { Queue } from 'bullmq';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

/** A queue of a process that never runs a delivery itself. */
class AlwaysSecond extends BullMqQueue {
  override async consume(): Promise<void> {}
}

(await describeWith('Redis'))('send, if another process makes the attempt', () => {
  const queues: Queue[] = [];
  let receiver: WireReceiver;
  let apps: StartedApp[];

  beforeAll(async () => {
    receiver = await WireReceiver.start();
    const name = `webhooks-${randomBytes(6).toString('hex')}`;
    apps = await Promise.all(
      [AlwaysSecond, BullMqQueue].map(async (WebhookQueue) => {
        const queue = new Queue(name, { connection: { url: urlOf('Redis') } });
        queues.push(queue);
        return startApp(new ExpressAdapter(), {
          options: {
            publisher: {
              issuer: 'https://billing.example',
              secret: SECRET,
              endpoints: [{ id: 'crm', url: receiver.url }],
              allowHttp: true,
              allowedAddresses: ['127.0.0.1'],
              queue: new WebhookQueue(queue),
            },
          },
        });
      }),
    );
  });
  beforeEach(() => {
    receiver.script = () => ({ status: 204 });
  });
  afterAll(async () => {
    await Promise.all(apps.map(({ app }) => app.close()));
    await queues[0]!.obliterate({ force: true });
    await Promise.all(queues.map((queue) => queue.close()));
    await receiver.stop();
  });

  const send = () => apps[0]!.app.get(WebhookPublisher).send('crm', 'order.created', { id: 1 });

  it('reports a successful attempt', async () => {
    expect(await send()).toMatchObject({ status: 'delivered', attempts: 1 });
  });

  it('reports a failed attempt and the time of the next', async () => {
    receiver.script = () => ({ status: 500 });

    expect(await send()).toMatchObject({
      status: 'scheduled',
      attempts: 1,
      failureReason: 'http_500',
      nextAttemptAt: expect.any(Date),
    });
  });

  it('reports that it waits until the Retry-After of the destination', async () => {
    receiver.script = () => ({ status: 503, headers: { 'Retry-After': '3600' } });
    await send();

    expect(await send()).toMatchObject({ status: 'scheduled', attempts: 0 });
  });
});
