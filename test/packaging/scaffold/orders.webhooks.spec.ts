import type { INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { WebhookModule } from 'nestjs-webhook-token';
import { signWebhook } from 'nestjs-webhook-token/testing';
import { OrderCreated, OrderWebhooks } from './orders.webhooks.js';

const shop = { issuer: 'https://shop.example', secret: 'a-shared-secret-of-32-bytes-or-more' };

describe('OrderWebhooks', () => {
  let app: INestApplication;

  beforeAll(async () => {
    const module = await Test.createTestingModule({
      imports: [WebhookModule.forRoot({ receiver: { path: 'webhooks', issuers: [shop] } })],
      providers: [OrderWebhooks],
    }).compile();
    app = module.createNestApplication();
    await app.listen(0, '127.0.0.1');
  });
  afterAll(async () => app.close());

  const deliver = async (data: Record<string, unknown>): Promise<number> => {
    const { method, headers } = await signWebhook('order.created', data, shop);
    const answer = await fetch(`${await app.getUrl()}/webhooks`, { method, headers });
    return answer.status;
  };

  it('handles a validated order', async () => {
    expect(await deliver({ id: 'o1', total: 1 })).toBe(204);
    expect(app.get(OrderWebhooks).created).toEqual([
      Object.assign(new OrderCreated(), { id: 'o1', total: 1 }),
    ]);
  });

  it('rejects an order without a total', async () => {
    expect(await deliver({ id: 'o2' })).toBe(422);
  });
});
