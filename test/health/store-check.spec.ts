import { afterAll, describe, expect, it } from '@jest/globals';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { Redis } from 'ioredis';
import { RedisReplayStore } from 'nestjs-webhook-token/redis';
import { PostgresEndpointStore, PostgresReplayStore } from 'nestjs-webhook-token/postgres';
import {
  WebhookStoreError,
  MemoryReplayStore,
  type WebhookModuleOptions,
} from 'nestjs-webhook-token';
import { WebhookConfigurationError } from 'nestjs-webhook-token/token';
import { WebhookStoreCheck } from '../../lib/health/store-check.js';
import { freePort } from '../fixtures/free-port.js';
import { receiverOptions, startApp, type StartOptions } from '../fixtures/receiver-app.js';
import { describeWith } from '../fixtures/services.js';
import { storeIn, TestDatabase } from '../postgres/database.js';

/** Starts and stops an application; returns the errors of a failed start-up. */
async function problemsAtStart(
  options: WebhookModuleOptions,
  more: StartOptions = {},
): Promise<readonly string[]> {
  try {
    const { app } = await startApp(new ExpressAdapter(), { ...more, options });
    await app.close();
    return [];
  } catch (error) {
    if (!(error instanceof WebhookConfigurationError)) throw error;
    return error.problems.map(({ path, message }) => `${path}: ${message}`);
  }
}

(await describeWith('PostgreSQL'))('start-up on a database without the tables', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  const storesIn = (schema: string): WebhookModuleOptions => ({
    ...receiverOptions({
      replay: { store: new PostgresReplayStore(database.pool, storeIn(schema)) },
    }),
    publisher: {
      issuer: 'https://billing.example',
      secret: 'correct-horse-battery-staple-0002',
      endpointStore: new PostgresEndpointStore(database.pool, storeIn(schema)),
      sealingKeys: [{ id: 'a', key: Buffer.alloc(32, 1).toString('base64') }],
    },
  });

  it('fails, and names each store and the command that creates the tables', async () => {
    expect(await problemsAtStart(storesIn(database.newSchema()))).toEqual([
      expect.stringMatching(/^receiver "default"\.replay\.store: .*nestjs-webhook-token migrate/),
      expect.stringMatching(/^publisher\.endpointStore: .*nestjs-webhook-token migrate/),
    ]);
  });

  it('succeeds if a provider migrates in onModuleInit', async () => {
    const schema = database.newSchema();

    @Injectable()
    class Migrations implements OnModuleInit {
      async onModuleInit(): Promise<void> {
        await new PostgresReplayStore(database.pool, { schema }).migrate();
      }
    }

    expect(await problemsAtStart(storesIn(schema), { providers: [Migrations] })).toEqual([]);
  });

  it('succeeds with checkStores: false', async () => {
    const options = { ...storesIn(database.newSchema()), checkStores: false };
    expect(await problemsAtStart(options)).toEqual([]);
  });
});

describe('a store check', () => {
  const noPause = async (): Promise<void> => undefined;
  const unavailable = new WebhookStoreError('store_unavailable', 'Redis is away.');

  const checkOf = (check: () => Promise<void>): WebhookStoreCheck =>
    new WebhookStoreCheck([{ path: 'receiver "default".replay.store', store: { check } }], noPause);

  it('waits for a store that is still connecting', async () => {
    let attempts = 0;
    const check = checkOf(async () => {
      attempts++;
      if (attempts < 3) throw unavailable;
    });
    await check.onApplicationBootstrap();
    expect(attempts).toBe(3);
  });

  it('fails if a store stays unavailable, and explains how to start without it', async () => {
    const check = checkOf(async () => Promise.reject(unavailable));
    await expect(check.onApplicationBootstrap()).rejects.toMatchObject({
      cause: unavailable,
      problems: [
        {
          path: 'receiver "default".replay.store',
          message:
            'Redis is away; start it or correct its address, or set checkStores: false to start without it',
        },
      ],
    });
  });

  it('does not quote the error of a driver, which may contain a password', async () => {
    const check = checkOf(async () => Promise.reject(new TypeError('redis://:hunter2@db')));
    const error: unknown = await check.onApplicationBootstrap().catch((thrown: unknown) => thrown);
    expect((error as Error).message).toMatch(/cannot be used \(TypeError\)/);
    expect((error as Error).message).not.toContain('hunter2');
  });

  it('accepts a store without a check method', async () => {
    const store = new MemoryReplayStore();
    Object.defineProperty(store, 'check', { value: undefined });
    const check = new WebhookStoreCheck([{ path: 'store', store }], noPause);
    await expect(check.onApplicationBootstrap()).resolves.toBeUndefined();
  });

  it('detects an unreachable Redis server', async () => {
    const redis = new Redis(await freePort(), '127.0.0.1', {
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
    });
    redis.on('error', () => {});
    const store = new RedisReplayStore(redis);
    try {
      await expect(store.check()).rejects.toMatchObject({ code: 'store_unavailable' });
    } finally {
      redis.disconnect();
    }
  });
});
