// Runs an application with @nestjs-cls/transactional through several scenarios, and prints the result of each as a line of JSON.
// A process of its own: that package requires Nest, which is ESM, as Node can and Jest cannot.
import 'reflect-metadata';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  ClsPluginTransactional,
  getTransactionHostToken,
  Propagation,
  Transactional,
} from '@nestjs-cls/transactional';
import { drizzle } from 'drizzle-orm/node-postgres';
import { ClsModule } from 'nestjs-cls';
import {
  InProcessQueue,
  OnWebhookDelivery,
  WebhookModule,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { WebhookQueue } from 'nestjs-webhook-token/ports';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { Pool } from 'pg';

const [, , connectionString, schema] = process.argv;
const pool = new Pool({ connectionString });
const db = drizzle(pool);
const undo = new Error('undo');

/** What an adapter package knows about Drizzle: how to open a transaction, and a nested one. */
const drizzleAdapter = {
  connection: db,
  optionsFactory: () => ({
    wrapWithTransaction: async (_, work, setTx) =>
      db.transaction(async (tx) => {
        setTx(tx);
        return work();
      }),
    wrapWithNestedTransaction: async (_, work, setTx, outer) =>
      outer.transaction(async (tx) => {
        setTx(tx);
        return work();
      }),
    getFallbackInstance: () => db,
  }),
};

/** Of a database without a queue. */
const foreignAdapter = {
  connection: {},
  optionsFactory: () => ({
    wrapWithTransaction: async (_, work, setTx) => {
      setTx({ session: 'of a document database' });
      return work();
    },
    getFallbackInstance: () => ({}),
  }),
};

const receiver = createServer((_, answer) => answer.writeHead(204).end()).listen(0, '127.0.0.1');
await once(receiver, 'listening');

let app;
let logged;

/** Starts an application with these connections, `undefined` for one without a name. */
async function start(connections, change = {}, { adapter = drizzleAdapter, providers = [] } = {}) {
  const plugins = connections.map(
    (connectionName) => new ClsPluginTransactional({ adapter, connectionName }),
  );
  const webhooks = WebhookModule.forRoot({
    publisher: {
      issuer: 'https://billing.example',
      secret: 'correct-horse-battery-staple-0001',
      endpoints: [{ id: 'crm', url: `http://127.0.0.1:${receiver.address().port}` }],
      allowHttp: true,
      allowedAddresses: ['127.0.0.1'],
      queue: new PostgresQueue({ pool, schema, pollInterval: '100ms' }),
      ...change,
    },
  });
  class TestApp {}
  Module({ imports: [ClsModule.forRoot({ global: true, plugins }), webhooks], providers })(TestApp);
  logged = [];
  const warn = (line) => logged.push(line);
  const logger = { log() {}, error() {}, debug() {}, verbose() {}, fatal() {}, warn };
  app = await NestFactory.createApplicationContext(TestApp, { logger, abortOnError: false });
}

const host = (name) => app.get(getTransactionHostToken(name));

/** Publishes in the open transaction, with a delay, so that the delivery waits in the queue. */
async function publish(id, options = {}) {
  const all = { id, delay: '1h', ...options };
  const { deliveries } = await app.get(WebhookPublisher).publish('order.created', { id }, all);
  return deliveries[0].id;
}

async function isRecorded(deliveryId) {
  const [known] = await app.get(WebhookQueue).find([deliveryId]);
  return known !== undefined;
}

/** Runs work in a transaction that is rolled back. */
async function undone(open, work) {
  let id;
  const run = open.withTransaction(async () => {
    id = await work();
    throw undo;
  });
  await run.catch((error) => {
    if (error !== undo) throw error;
  });
  return id;
}

const scenarios = {
  async committed() {
    await start([undefined]);
    let during;
    let id;
    await host().withTransaction(async () => {
      id = await publish('committed');
      during = await isRecorded(id);
    });
    return { during, after: await isRecorded(id) };
  },
  async 'rolled back'() {
    await start([undefined]);
    return isRecorded(await undone(host(), () => publish('undone')));
  },
  async decorated() {
    class Orders {
      ids = [];
      async place(id, fails) {
        this.ids.push(await publish(id));
        if (fails) throw undo;
      }
    }
    const method = Object.getOwnPropertyDescriptor(Orders.prototype, 'place');
    Transactional()(Orders.prototype, 'place', method);
    Object.defineProperty(Orders.prototype, 'place', method);
    await start([undefined]);
    const orders = new Orders();
    await orders.place('decorated');
    await orders.place('decorated-undone', true).catch(() => {});
    return Promise.all(orders.ids.map(isRecorded));
  },
  ...Object.fromEntries(
    ['Required', 'Nested', 'RequiresNew', 'NotSupported'].map((name) => [
      `inner with ${name}, of a transaction that is rolled back`,
      async () => {
        await start([undefined]);
        const inner = () =>
          host().withTransaction(Propagation[name], async () => publish(`inner-${name}`));
        return isRecorded(await undone(host(), inner));
      },
    ]),
  ),
  async 'nested, rolled back on its own'() {
    await start([undefined]);
    let outer;
    let inner;
    await host().withTransaction(async () => {
      outer = await publish('nested-outer');
      const nested = host().withTransaction(Propagation.Nested, async () => {
        inner = await publish('nested-inner');
        throw undo;
      });
      await nested.catch(() => {});
    });
    return { outer: await isRecorded(outer), inner: await isRecorded(inner) };
  },
  async 'no open transaction'() {
    await start([undefined]);
    return isRecorded(await publish('plain'));
  },
  async 'tx: false'() {
    await start([undefined]);
    return isRecorded(await undone(host(), () => publish('apart', { tx: false })));
  },
  async 'tx of another transaction'() {
    await start([undefined]);
    let id;
    await db.transaction(async (tx) => {
      id = await undone(host(), () => publish('given', { tx }));
    });
    return isRecorded(id);
  },
  async 'two connections, the one without a name'() {
    await start([undefined, 'reports']);
    return isRecorded(await undone(host(), () => publish('chosen-1')));
  },
  async 'two connections, the other'() {
    await start([undefined, 'reports']);
    return isRecorded(await undone(host('reports'), () => publish('chosen-2')));
  },
  async 'one connection with a name'() {
    await start(['orders']);
    return isRecorded(await undone(host('orders'), () => publish('chosen-3')));
  },
  async 'the selected connection'() {
    await start([undefined, 'orders'], { transactionHost: 'orders' });
    return isRecorded(await undone(host('orders'), () => publish('chosen-4')));
  },
  async 'another than the selected connection'() {
    await start([undefined, 'orders'], { transactionHost: 'orders' });
    return isRecorded(await undone(host(), () => publish('chosen-5')));
  },
  async 'transactionHost: false'() {
    await start([undefined], { transactionHost: false });
    return isRecorded(await undone(host(), () => publish('off')));
  },
  async 'named connections, none selected'() {
    await start(['orders', 'reports']);
    return host('orders').withTransaction(() => publish('which'));
  },
  async 'named connections, none selected, no open transaction'() {
    await start(['orders', 'reports']);
    return isRecorded(await publish('which-not'));
  },
  async 'an unknown connection'() {
    await start([undefined], { transactionHost: 'ordres' });
  },
  async 'a database without a queue'() {
    await start([undefined], {}, { adapter: foreignAdapter });
    return host().withTransaction(() => publish('foreign'));
  },
  async 'no connection, but a class of the application with the name TransactionHost'() {
    class TransactionHost {
      name = 'of the application';
    }
    Injectable()(TransactionHost);
    await start([], {}, { providers: [TransactionHost] });
    return isRecorded(await publish('namesake'));
  },
  async 'a queue in memory'() {
    await start([undefined], { queue: new InProcessQueue() });
    await undone(host(), () => publish('meant-so', { tx: false }));
    const before = logged.length;
    const id = await undone(host(), () => publish('in-memory-1'));
    await undone(host(), () => publish('in-memory-2'));
    return { before, recorded: await isRecorded(id), warnings: logged };
  },
  async 'a reaction to a delivery'() {
    const reaction = Promise.withResolvers?.() ?? withResolvers();
    class Reactions {
      onDelivered() {
        reaction.resolve(host().isTransactionActive());
      }
    }
    Injectable()(Reactions);
    const method = Object.getOwnPropertyDescriptor(Reactions.prototype, 'onDelivered');
    OnWebhookDelivery('delivered')(Reactions.prototype, 'onDelivered', method);
    await start([undefined], { queue: new InProcessQueue() }, { providers: [Reactions] });
    return host().withTransaction(async () => {
      await app.get(WebhookPublisher).publish('order.created', {}, { tx: false });
      return reaction.promise;
    });
  },
};

function withResolvers() {
  const made = {};
  made.promise = new Promise((resolve) => (made.resolve = resolve));
  return made;
}

for (const [name, run] of Object.entries(scenarios)) {
  app = undefined;
  const result = await run().then(
    (value) => ({ value }),
    ({ code, message }) => ({ error: { code, message } }),
  );
  console.log(JSON.stringify({ name, ...result }));
  await app?.close();
}
await pool.end();
receiver.close();
