import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { head, post } from '../fixtures/http-client.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

describe('sample 01-receiver-express', () => {
  const shop = new Sender('shop');
  let sample: SampleProcess;
  let origin: string;

  beforeAll(async () => {
    sample = SampleProcess.start('01-receiver-express', shop.env);
    origin = await sample.origin();
  });
  afterAll(() => sample.stop());

  it('passes inline data to the handlers of order.created and order.*', async () => {
    const data = { id: 'o-1', customer: 'Ada', total: 4200 };
    const token = shop.sign({ event: 'order.created', data, txn: 'first-order' });

    expect((await head(origin, token)).status).toBe(204);

    await sample.printed(/Order o-1 of 4200 cents, reported by https:\/\/shop\.test/);
    await sample.printed(/order\.created first-order arrived by HEAD/);
  });

  it('passes a member of a JSON body to its handler', async () => {
    const signed = shop.signBody('order.updated', '{"id":"o-2","status":"paid"}');

    expect((await post(origin, signed)).status).toBe(204);

    await sample.printed(/Order o-2 is paid/);
  });

  it('rejects data that does not match the DTO', async () => {
    const token = shop.sign({ event: 'order.created', data: { id: 'o-3', total: -1 } });

    const { status, headers } = await head(origin, token);

    expect([status, headers['webhook-error']]).toEqual([422, 'invalid_payload']);
  });

  it('rejects a token that is signed with another secret', async () => {
    const stranger = new Sender('stranger');

    expect((await head(origin, stranger.sign({ event: 'order.created' }))).status).toBe(401);
  });
});

it('does not start without a secret, and names the missing option', async () => {
  const sample = SampleProcess.start('01-receiver-express', { SHOP_SECRET: '' });

  expect(await sample.exitCode()).not.toBe(0);
  expect(sample.output).toMatch(/receiver.*issuers\[0\]\.secret/);
});
