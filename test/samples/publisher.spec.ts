import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { send, type Answer } from '../fixtures/http-client.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

jest.setTimeout(60_000);

describe('sample 03-publisher, with sample 01 as the receiver', () => {
  const { env } = new Sender('shop');
  let crm: SampleProcess;
  let shop: SampleProcess;
  let origin: string;

  beforeAll(async () => {
    crm = SampleProcess.start('01-receiver-express', env);
    shop = SampleProcess.start('03-publisher', {
      ...env,
      CRM_URL: `${await crm.origin()}/webhooks`,
    });
    origin = await shop.origin();
  });
  afterAll(() => Promise.all([crm.stop(), shop.stop()]));

  const request = (method: string, path: string, body?: object): Promise<Answer> =>
    send(origin, { method, path, ...(body && { body: JSON.stringify(body) }) });

  const placeOrder = async (): Promise<string> => {
    const { status, json } = await request('POST', '/orders', { customer: 'Ada', total: 4200 });
    expect(status).toBe(201);
    return json!['id'] as string;
  };

  it('publishes a new order', async () => {
    const id = await placeOrder();

    await crm.printed(new RegExp(`Order ${id} of 4200 cents`));
  });

  it('publishes an update of an order', async () => {
    const id = await placeOrder();

    const { status, json } = await request('PATCH', `/orders/${id}`, { status: 'shipped' });

    expect([status, json]).toEqual([200, { id, customer: 'Ada', total: 4200, status: 'shipped' }]);
    await crm.printed(new RegExp(`Order ${id} is shipped`));
  });

  it('sends a signed request with its own HTTP client', async () => {
    const id = await placeOrder();

    const { json } = await request('POST', `/partners/crm/orders/${id}`);

    expect(json).toEqual({ status: 204 });
  });

  it.each([
    ['an order without a customer', 'POST', '/orders', { total: 4200 }, 400],
    ['an update of an unknown order', 'PATCH', '/orders/none', { status: 'paid' }, 404],
    ['the announcement of an unknown order', 'POST', '/partners/crm/orders/none', {}, 404],
  ])('rejects %s', async (_, method, path, body, status) => {
    expect((await request(method, path, body)).status).toBe(status);
  });
});

it('accepts orders while the receiver is down', async () => {
  const { env } = new Sender('shop');
  const crm = SampleProcess.start('01-receiver-express', env);
  const url = await crm.origin();
  await crm.stop();
  const shop = SampleProcess.start('03-publisher', { ...env, CRM_URL: `${url}/webhooks` });
  const body = JSON.stringify({ customer: 'Ada', total: 4200 });

  const { status } = await send(await shop.origin(), { path: '/orders', body });

  expect(status).toBe(201);
  await shop.stop();
});
