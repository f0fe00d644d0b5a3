import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { RedisReplayStore } from 'nestjs-webhook-token/redis';
import { OnWebhookEvent, type WebhookEvent } from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';

/** Counts over all replicas, like an application's database. */
const handled = new Map<string, number>();

@Injectable()
class Orders {
  private readonly failed = new Set<string>();

  @OnWebhookEvent('order.created')
  onCreated({ id, fails }: { id: string; fails: boolean }, _event: WebhookEvent): void {
    if (fails && !this.failed.has(id)) {
      this.failed.add(id);
      throw new Error('the first run fails');
    }
    handled.set(id, (handled.get(id) ?? 0) + 1);
  }
}

const describeRedis = await describeWith('Redis');

describeRedis.each(adapters)('two replicas on %s that share Redis', (_, make) => {
  const prefix = `test-${randomBytes(6).toString('hex')}`;
  const clients: Redis[] = [];
  let replicas: StartedApp[];

  beforeAll(async () => {
    replicas = await Promise.all(
      [0, 1].map(async () => {
        const redis = new Redis(urlOf('Redis'), { enableOfflineQueue: true });
        clients.push(redis);
        return startApp(make(), {
          options: receiverOptions({
            replay: { store: new RedisReplayStore(redis, { prefix, timeout: '30s' }) },
          }),
          providers: [Orders],
        });
      }),
    );
  });
  afterAll(async () => {
    await Promise.all(replicas.map(({ app }) => app.close()));
    for (const client of clients) client.disconnect();
  });

  /** Repeats the event until it is acknowledged, like a sender. */
  async function deliver(token: string): Promise<void> {
    for (let attempt = 0; attempt < 50; attempt++) {
      const answers = await Promise.all(
        replicas.map(({ origin }) => send(origin, { method: 'HEAD', token })),
      );
      if (answers.some(({ status }) => status === 204)) return;
    }
    throw new Error('the event was never acknowledged');
  }

  it('handle each of 100 events once, although both get every copy and one in ten fails', async () => {
    const ids = Array.from({ length: 100 }, () => randomBytes(8).toString('hex'));
    await Promise.all(
      ids.map(async (id, index) => deliver(signed({ data: { id, fails: index % 10 === 0 } }))),
    );

    expect(ids.map((id) => handled.get(id))).toEqual(ids.map(() => 1));
  });

  it('do not warn that the store protects one process only', () => {
    for (const { logger } of replicas)
      expect(logger.lines.join('\n')).not.toContain('this process only');
  });
});

describe.each(adapters)('a replica on %s whose Redis is unreachable', (_, make) => {
  it('answers 503 and handles nothing', async () => {
    // Like a client without an offline queue.
    const refuse = async (): Promise<never> => {
      throw new Error('the connection is closed');
    };
    const redis = { eval: refuse, evalsha: refuse };
    const started = await startApp(make(), {
      options: {
        ...receiverOptions({ replay: { store: new RedisReplayStore(redis) } }),
        checkStores: false,
      },
      providers: [Orders],
    });
    const id = randomBytes(8).toString('hex');
    const token = signed({ data: { id, fails: false } });
    const answer = await send(started.origin, { method: 'HEAD', token });
    await started.app.close();

    expect(answer.status).toBe(503);
    expect(answer.headers['retry-after']).toBe('5');
    expect(handled.has(id)).toBe(false);
  });
});
