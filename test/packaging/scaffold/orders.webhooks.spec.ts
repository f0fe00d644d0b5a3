import type { INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { WebhookModule } from 'nestjs-webhook-token';
import { WebhookConsoleModule } from 'nestjs-webhook-token/console';
import { deliverWebhook, expectIdempotent, overrideWebhooks } from 'nestjs-webhook-token/testing';
import { OrderCreated, OrderWebhooks } from './orders.webhooks.js';

const shop = { issuer: 'https://shop.example', secret: 'a-shared-secret-of-32-bytes-or-more' };

describe('OrderWebhooks', () => {
  let app: INestApplication;

  beforeAll(async () => {
    const builder = Test.createTestingModule({
      imports: [
        WebhookModule.forRoot({ receiver: { path: 'webhooks', issuers: [shop] } }),
        WebhookConsoleModule.forRoot({ allowUnguarded: true }),
      ],
      providers: [OrderWebhooks],
    });
    const module = await overrideWebhooks(builder).compile();
    app = module.createNestApplication();
  });
  afterAll(async () => app.close());

  it('handles a validated order', async () => {
    const answer = await deliverWebhook(app, 'order.created', { id: 'o1', total: 1 }, shop);

    expect(answer).toMatchObject({ status: 204, outcome: 'handled' });
    expect(app.get(OrderWebhooks).created).toEqual([
      Object.assign(new OrderCreated(), { id: 'o1', total: 1 }),
    ]);
  });

  it('rejects an order without a total', async () => {
    const answer = await deliverWebhook(app, 'order.created', { id: 'o2' }, shop);

    expect(answer).toMatchObject({ status: 422, code: 'invalid_payload' });
  });

  it('appends an order twice, which expectIdempotent finds', async () => {
    const { created } = app.get(OrderWebhooks);
    const observe = () => created;
    const check = expectIdempotent(
      app,
      'order.created',
      { id: 'o3', total: 1 },
      { ...shop, observe },
    );

    await expect(check).rejects.toThrow('crash-before-record');
  });

  it('shows the page of the console', async () => {
    await app.listen(0, '127.0.0.1');
    const page = await fetch(`${await app.getUrl()}/webhooks/console/`);

    expect(await page.text()).toContain('assets/console-');
  });
});
