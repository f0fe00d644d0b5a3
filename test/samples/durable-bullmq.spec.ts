import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import { freePort } from '../fixtures/free-port.js';
import { send } from '../fixtures/http-client.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

const NAME = '05-durable-bullmq';

(await describeWith('Redis'))(`sample ${NAME}`, () => {
  const { env } = new Sender('shop');
  const QUEUE_NAME = `test-${randomBytes(6).toString('hex')}`;
  const running: SampleProcess[] = [];

  const start = (name: string, settings: Readonly<Record<string, string>>): SampleProcess => {
    const sample = SampleProcess.start(name, { ...env, REDIS_URL: urlOf('Redis'), ...settings });
    running.push(sample);
    return sample;
  };
  const invoice = async (origin: string): Promise<string> => {
    const { status, json } = await send(origin, { path: '/invoices', body: '{"total":4200}' });
    expect(status).toBe(201);
    return json!['id'] as string;
  };

  let crmUrl: string;
  beforeAll(async () => {
    // No server listens there yet.
    crmUrl = `http://127.0.0.1:${await freePort()}`;
  });
  afterAll(async () => {
    await Promise.all(running.map((sample) => sample.stop()));
    const queue = new Queue(QUEUE_NAME, { connection: { url: urlOf('Redis') } });
    await queue.obliterate({ force: true });
    await queue.close();
  });

  it('delivers pending events after a restart', async () => {
    const settings = { QUEUE_NAME, CRM_URL: `${crmUrl}/webhooks` };
    const shop = start(NAME, settings);
    await invoice(await shop.origin());
    await shop.printed(/invoice\.created [-\w]+ will be retried: connection/);
    await shop.stop();

    start('01-receiver-express', { PORT: new URL(crmUrl).port });
    const again = start(NAME, settings);

    await again.printed(/invoice\.created [-\w]+ delivered at attempt [2-9]/);
  });

  it('lists its deliveries at /queues', async () => {
    const shop = start(NAME, { QUEUE_NAME, CRM_URL: `${crmUrl}/webhooks` });
    const origin = await shop.origin();
    await invoice(origin);

    const board = await send(origin, { method: 'GET', path: '/queues' });
    const queues = await send(origin, { method: 'GET', path: '/queues/api/queues' });

    expect(board.status).toBe(200);
    expect(JSON.stringify(queues.json)).toContain(QUEUE_NAME);
  });
});

it.each([NAME, '06-replicas-redis'])(
  '%s exits with a one-line message if Redis is unreachable',
  async (name) => {
    const sample = SampleProcess.start(name, { REDIS_URL: 'redis://127.0.0.1:1' });

    expect(await sample.exitCode()).toBe(1);
    expect(sample.lines).toEqual([
      'This sample needs Redis at 127.0.0.1:1: start redis-server, or set REDIS_URL.',
    ]);
  },
);
