import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { ExpressAdapter } from '@nestjs/platform-express';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith } from '../fixtures/services.js';
import { WireReceiver } from '../publisher/wire-receiver.js';
import { TestDatabase } from './database.js';

(await describeWith('PostgreSQL'))('publish in a transaction', () => {
  const database = new TestDatabase();
  const orders = `${database.newSchema()}.orders`;
  let receiver: WireReceiver;
  let started: StartedApp;

  beforeAll(async () => {
    receiver = await WireReceiver.start();
    await database.pool.query(`CREATE SCHEMA ${orders.split('.')[0]}`);
    await database.pool.query(`CREATE TABLE ${orders} (id text)`);
    started = await startApp(new ExpressAdapter(), {
      options: {
        publisher: {
          issuer: 'https://billing.example',
          secret: SECRET,
          endpoints: [
            { id: 'crm', url: receiver.url },
            { id: 'ledger', url: receiver.url, events: ['order.paid'] },
          ],
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          queue: new PostgresQueue({
            pool: database.pool,
            schema: database.newSchema(),
            pollInterval: '100ms',
          }),
        },
      },
    });
  });
  afterAll(async () => {
    await started.app.close();
    await receiver.stop();
    await database.close();
  });

  /** An order and its event, in one transaction. */
  async function placeOrder(id: string, end: 'COMMIT' | 'ROLLBACK'): Promise<void> {
    const client = await database.pool.connect();
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${orders} VALUES ($1)`, [id]);
    await started.app
      .get(WebhookPublisher)
      .publish('order.created', { id }, { id: `event-${id}`, tx: client });
    await client.query(end);
    client.release();
  }

  it('sends the event of a committed order, and none of one that was rolled back', async () => {
    await placeOrder('undone', 'ROLLBACK');
    await placeOrder('placed', 'COMMIT');
    await receiver.received(1);
    await placeOrder('last', 'COMMIT');
    await receiver.received(2);

    expect(receiver.requests).toHaveLength(2);
    const { rows } = await database.pool.query(`SELECT id FROM ${orders}`);
    expect(rows).toEqual([{ id: 'placed' }, { id: 'last' }]);
  });

  it('publishes many events of a key in one transaction, or none, without a gap in their numbers', async () => {
    const { requests } = receiver;
    const start = requests.length;
    const publish = async (end: 'COMMIT' | 'ROLLBACK', ...levels: number[]): Promise<void> => {
      const client = await database.pool.connect();
      await client.query('BEGIN');
      const events = levels.map((level) => ({
        event: 'stock.changed',
        data: { level },
        options: { orderingKey: 'sku-1' },
      }));
      await started.app.get(WebhookPublisher).publishAll(events, { tx: client });
      await client.query(end);
      client.release();
    };
    await publish('COMMIT', 1, 2);
    await publish('ROLLBACK', 3);
    await publish('COMMIT', 4, 5);
    await receiver.received(start + 4);

    const claims = requests.slice(start).map((request) => request.claims.webhook);
    expect(claims.map(({ data }) => data.level)).toEqual([1, 2, 4, 5]);
    expect(claims.map(({ seq }) => seq - claims[0].seq)).toEqual([0, 1, 2, 3]);
  });

  it('records no event of a call with a conflict of ids, even if the transaction is committed', async () => {
    const { requests } = receiver;
    const publisher = started.app.get(WebhookPublisher);
    const start = requests.length;
    await publisher.publish('order.created', { id: 1 }, { id: 'taken' });
    const client = await database.pool.connect();
    await client.query('BEGIN');
    const call = publisher.publishAll(
      [
        { event: 'order.paid', data: { id: 2 }, options: { id: 'taken' } },
        { event: 'order.paid', data: { id: 3 } },
      ],
      { tx: client },
    );
    await expect(call).rejects.toMatchObject({ code: 'id_conflict' });
    await client.query('COMMIT');
    client.release();
    await publisher.publish('order.paid', { id: 4 });
    await receiver.received(start + 3);

    const sent = requests.slice(start).map(({ claims }) => claims.webhook.data.id);
    expect(sent).toEqual([1, 4, 4]);
  });

  it('returns the result of the attempt from send', async () => {
    const result = await started.app.get(WebhookPublisher).send('crm', 'order.created', { id: 1 });

    expect(result).toMatchObject({ status: 'delivered', attempts: 1 });
  });
});
