import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { Pool } from 'pg';
import type { ReplayStore } from 'nestjs-webhook-token/ports';
import { RedisReplayStore } from 'nestjs-webhook-token/redis';
import { OnWebhookEvent } from 'nestjs-webhook-token';
import { PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import { isWebhookError } from 'nestjs-webhook-token/token';
import { adapters } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { OwnServer, ownPostgres, ownRedis } from '../fixtures/own-server.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';

interface OpenStore {
  readonly store: ReplayStore;
  readonly close: () => Promise<void>;
}

const STORES = [
  {
    name: 'Redis',
    program: ownRedis('always'),
    open: async (url: string): Promise<OpenStore> => {
      const redis = new Redis(url, { enableOfflineQueue: false, maxRetriesPerRequest: 0 });
      redis.on('error', () => {});
      const store = new RedisReplayStore(redis, { timeout: '500ms' });
      return { store, close: async () => redis.disconnect() };
    },
  },
  {
    name: 'PostgreSQL',
    program: ownPostgres(),
    open: async (url: string): Promise<OpenStore> => {
      const pool = new Pool({ connectionString: url });
      // Without a listener, a broken idle connection would end the process.
      pool.on('error', () => {});
      const store = new PostgresReplayStore(pool, { timeout: '500ms' });
      // The server accepts connections before it answers queries.
      await untilItWorks(async () => store.migrate());
      return { store, close: async () => pool.end() };
    },
  },
];

async function untilItWorks(act: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (!isWebhookError(error, 'store_unavailable')) throw error;
    }
  }
}

for (const { name, program } of STORES) {
  if (program === undefined)
    process.stderr.write(`Skipped the tests that kill ${name}: its programs were not found.\n`);
}

const handled: string[] = [];

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  onCreated({ id }: { id: string }): void {
    handled.push(id);
  }
}

const there = STORES.filter(({ program }) => program !== undefined);
const cases = there.flatMap((store) =>
  adapters.map(([adapter, make]) => ({ ...store, adapter, make })),
);

(cases.length === 0 ? describe.skip : describe).each(cases)(
  'a receiver on $adapter with its replay store on $name',
  ({ program, open, make, name, adapter }) => {
    let server: OwnServer;
    let opened: OpenStore;
    let started: StartedApp;
    beforeAll(async () => {
      server = await OwnServer.start(program!);
      opened = await open(server.url);
      started = await startApp(make(), {
        options: receiverOptions({ replay: { store: opened.store, lease: '1s' } }),
        providers: [Orders],
      });
    });
    afterAll(async () => {
      await started.app.close();
      await opened.close();
      await server.remove();
    });

    const deliver = async (id: string): Promise<number> => {
      const token = signed({ data: { id }, txn: id });
      return (await send(started.origin, { method: 'HEAD', token })).status;
    };
    /** Sends the event, and repeats it while the answer asks for a retry, like a sender. */
    const deliverAtLast = async (id: string): Promise<number> => {
      let status = 503;
      while (status === 503 || status === 409) status = await deliver(id);
      return status;
    };

    it.each([
      ['is killed', async () => server.kill(), async () => server.restart()],
      ['is frozen', async () => server.freeze(), async () => server.thaw()],
    ])('answers 503 while the server %s, and works again afterwards', async (what, goes, comes) => {
      const id = [name, adapter, what].join('-');
      expect(await deliverAtLast(`${id}-before`)).toBe(204);
      await goes();
      const answers = [await deliver(id), await deliver(id)];
      const duringOutage = [...handled];
      await comes();

      expect(answers).toEqual([503, 503]);
      expect(duringOutage).not.toContain(id);
      expect(await deliverAtLast(id)).toBe(204);
      expect(handled.filter((each) => each === id)).toHaveLength(1);
    });
  },
);
