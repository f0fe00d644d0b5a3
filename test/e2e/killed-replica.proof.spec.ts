import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { Pool } from 'pg';
import type { ReplayStore } from 'nestjs-webhook-token/ports';
import { RedisReplayStore } from 'nestjs-webhook-token/redis';
import {
  OnWebhookEvent,
  type WebhookReceiverOptions,
  type WebhookEvent,
} from 'nestjs-webhook-token';
import { PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import { adapters } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { ISSUER, receiverOptions, SECRET, signed, startApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf, type Service } from '../fixtures/services.js';

const PROCESS = fileURLToPath(new URL('../fixtures/stuck-replica.process.mjs', import.meta.url));
const name = `test_${randomBytes(6).toString('hex')}`;
/** Of the killed replica; expires by the server's clock, independently of the replica. */
const LEASE = '1s';

const handled: string[] = [];

@Injectable()
class Orders {
  @OnWebhookEvent('**')
  onEvent(_data: unknown, event: WebhookEvent): void {
    handled.push(event.id);
  }
}

/** Starts another replica, delivers an event to it, and kills it while it handles the event. */
async function killDuringHandler(
  service: Service,
  deliver: (origin: string) => Promise<unknown>,
): Promise<void> {
  const receiver: WebhookReceiverOptions = {
    path: 'webhooks',
    issuers: [{ issuer: ISSUER, secret: SECRET }],
    replay: { lease: LEASE },
  };
  const settings = JSON.stringify({ service, url: urlOf(service), name, receiver });
  const child = spawn(process.execPath, ['--no-warnings', PROCESS, settings], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let delivery: Promise<unknown> = Promise.resolve();
  for await (const line of createInterface({ input: child.stdout })) {
    const [word, port] = line.split(' ');
    // The connection breaks when the replica dies.
    if (word === 'listening') delivery = deliver(`http://127.0.0.1:${port}`).catch(() => {});
    if (word === 'handling') child.kill('SIGKILL');
  }
  await delivery;
}

const redis = { client: undefined as Redis | undefined };
const pool = { client: undefined as Pool | undefined };
const STORES = {
  Redis: () =>
    new RedisReplayStore((redis.client = new Redis(urlOf('Redis'))), {
      prefix: name,
      timeout: '30s',
    }),
  PostgreSQL: () => {
    pool.client = new Pool({ connectionString: urlOf('PostgreSQL') });
    return new PostgresReplayStore(pool.client, { schema: name, timeout: '30s' });
  },
};

afterAll(async () => {
  redis.client?.disconnect();
  await pool.client?.query(`DROP SCHEMA IF EXISTS ${name} CASCADE`);
  await pool.client?.end();
});

for (const service of ['Redis', 'PostgreSQL'] as const) {
  const describeService = await describeWith(service);
  describeService(`replicas that share ${service}`, () => {
    let store: ReplayStore;
    beforeAll(() => {
      store = STORES[service]();
    });

    it.each(adapters)(
      'handle the event of a killed replica after its lease has expired: %s',
      async (adapter, make) => {
        const id = `${service}-${adapter}`;
        const deliver = async (origin: string): Promise<number> =>
          (await send(origin, { method: 'HEAD', token: signed({ txn: id, data: { id } }) })).status;
        await killDuringHandler(service, deliver);
        const { app, origin } = await startApp(make(), {
          options: receiverOptions({ replay: { store } }),
          providers: [Orders],
        });
        const answers = new Set<number>();
        let answer: number;
        do answers.add((answer = await deliver(origin)));
        while (answer === 409);
        await app.close();

        expect([...answers].filter((status) => status !== 409)).toEqual([204]);
        expect(handled.filter((each) => each === id)).toEqual([id]);
      },
    );
  });
}
