import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { head, post } from '../fixtures/http-client.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

const PAYMENTS = { path: '/payments/webhooks' };
const WAREHOUSE = { path: '/webhooks/warehouse' };

describe('sample 02-receiver-fastify', () => {
  const warehouse = new Sender('warehouse');
  const bank = new Sender('bank');
  let sample: SampleProcess;
  let origin: string;

  beforeAll(async () => {
    sample = SampleProcess.start('02-receiver-fastify', { ...warehouse.env, ...bank.env });
    origin = await sample.origin();
  });
  afterAll(() => sample.stop());

  it('passes a CSV file to the handler as bytes', async () => {
    const signed = warehouse.signBody('stock.exported', 'article,pieces\npen,12\nink,3\n');
    const headers = { 'content-type': 'text/csv' };

    expect((await post(origin, signed, { ...WAREHOUSE, headers })).status).toBe(204);

    await sample.printed(/2 articles in 28 bytes of text\/csv/);
  });

  it("passes the schema's output to the handler", async () => {
    const data = { id: 'p-1', amount: 4200, paidAt: '2026-05-04' };
    const token = bank.sign({ event: 'payment.received', data });

    expect((await head(origin, token, PAYMENTS)).status).toBe(204);

    await sample.printed(/payment\.received: p-1, 4200 cents at 2026-05-04T00:00:00\.000Z/);
  });

  it.each([
    ['data that does not match the schema', bank, 'payment.received', PAYMENTS, 422],
    ['an event that the bank may not send', bank, 'stock.exported', PAYMENTS, 403],
    ['the warehouse on the route of the bank', warehouse, 'payment.received', PAYMENTS, 401],
    ['the bank on the path of the warehouse', bank, 'stock.exported', WAREHOUSE, 401],
  ])('rejects %s', async (_, sender, event, path, status) => {
    const token = sender.sign({ event, data: { id: 'p-2' } });

    expect((await head(origin, token, path)).status).toBe(status);
  });
});
