import { randomUUID } from 'node:crypto';
import { HttpModule } from '@nestjs/axios';
import { Injectable } from '@nestjs/common';
import { afterEach, describe, expect, it } from '@jest/globals';
import * as fc from 'fast-check';
import { matchesEvent } from 'nestjs-webhook-token/token';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { ReplayClaim, ReplayVerdict } from 'nestjs-webhook-token/ports';
import {
  InProcessQueue,
  MemoryEndpointStore,
  MemoryReplayStore,
  OnWebhookEvent,
  WebhookConfigurationError,
  WebhookEndpoints,
  WebhookPublisher,
  type WebhookEvent,
  type WebhookModuleOptions,
} from 'nestjs-webhook-token';
import { createExpress } from '../fixtures/adapters.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';

const ISSUER = 'https://billing.example';
const secret = 'the secret of the publisher itself, 32 bytes';
const own = 'the secret that all endpoints here share, 32 b';

/** Accepts every copy: several endpoints lead to one receiver here, which would otherwise handle each event once. */
class TakesAllCopies extends MemoryReplayStore {
  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const key = randomUUID();
    return super.reserve({ ...claim, key, tokenKey: key });
  }
}

const started: StartedApp[] = [];
afterEach(async () => {
  for (const { app } of started.splice(0)) await app.close();
});

const tenants = [undefined, 'acme', 'ACME', 'other'] as const;
const patterns = ['**', 'order.*', 'order.created', '*.created', 'order.line.**'];
const events = ['order.created', 'order.deleted', 'refund.created', 'order.line.added'] as const;

const world = fc.record({
  endpoints: fc.array(
    fc.record({
      tenant: fc.constantFrom(...tenants),
      events: fc.uniqueArray(fc.constantFrom(...patterns), { minLength: 1, maxLength: 3 }),
      disabled: fc.boolean(),
    }),
    { maxLength: 6 },
  ),
  published: fc.array(
    fc.record({ tenant: fc.constantFrom(...tenants), event: fc.constantFrom(...events) }),
    { maxLength: 5 },
  ),
});

describe('managed endpoints', () => {
  /** Starts a receiver that records the subject and id of every event. */
  async function receiverOf(secrets: string[], clock: TestClock, options: object = {}) {
    const handled: string[] = [];
    @Injectable()
    class Notes {
      @OnWebhookEvent('**')
      note(_data: unknown, { subject, event, id }: WebhookEvent): void {
        handled.push(`${subject} ${event} ${id}`);
      }
    }
    const receiver = {
      path: 'webhooks',
      issuers: [{ issuer: ISSUER, secret: secrets }],
      ...options,
    };
    const app = await startApp(createExpress(), {
      options: { clock, receiver },
      providers: [Notes],
    });
    started.push(app);
    return { handled, url: `${app.origin}/webhooks` };
  }

  async function publisherOf(
    publisher: Partial<NonNullable<WebhookModuleOptions['publisher']>>,
    clock: TestClock,
  ) {
    const app = await startApp(createExpress(), {
      options: {
        clock,
        httpModule: HttpModule.register({}),
        publisher: {
          issuer: ISSUER,
          secret,
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          queue: new InProcessQueue({ clock }),
          ...publisher,
        },
      },
    });
    started.push(app);
    return {
      ...app,
      publisher: app.app.get(WebhookPublisher),
      endpoints: app.app.get(WebhookEndpoints),
    };
  }

  it('receive exactly the events of their tenant that they subscribe to', async () => {
    const clock = new TestClock();
    const { handled, url } = await receiverOf([own], clock, {
      replay: { store: new TakesAllCopies({ clock }) },
    });
    const { publisher, endpoints } = await publisherOf({}, clock);

    await fc.assert(
      fc.asyncProperty(world, async (given) => {
        handled.length = 0;
        const made = [];
        for (const [index, { disabled, tenant, ...others }] of given.endpoints.entries()) {
          const subject = `endpoint ${index}`;
          const described = { ...others, ...(tenant !== undefined && { tenant }) };
          const { endpoint } = await endpoints.create({ ...described, url, secret: own, subject });
          if (disabled) await endpoints.disable(endpoint.id);
          made.push({ ...others, tenant, disabled, id: endpoint.id, subject });
        }
        const expected: string[] = [];
        for (const { tenant, event } of given.published) {
          const scope = tenant === undefined ? {} : { tenant };
          const { id } = await publisher.publish(event, { id: 7 }, scope);
          const wanted = made.filter(
            (endpoint) =>
              !endpoint.disabled &&
              endpoint.tenant === tenant &&
              endpoint.events.some((pattern) => matchesEvent(pattern, event)),
          );
          expected.push(...wanted.map(({ subject }) => `${subject} ${event} ${id}`));
        }
        await turnsUntil(() => handled.length >= expected.length);
        for (const { id } of made) await endpoints.delete(id);

        expect([...handled].sort()).toEqual([...expected].sort());
      }),
      { numRuns: 40 },
    );
  });

  it('rotate a key under load without a rejected delivery', async () => {
    const clock = new TestClock();
    const next = 'the next secret that all endpoints share, 32 b';
    const { handled, url } = await receiverOf([own, next], clock);
    const { publisher, endpoints, logger } = await publisherOf({}, clock);
    await endpoints.create({ id: 'crm', url, secret: own });
    const publish = async (count: number): Promise<void> => {
      for (let sent = 0; sent < count; sent++) await publisher.publish('order.created', { sent });
    };

    await publish(60);
    const { kid, signsFrom } = await endpoints.rotateKey('crm', { secret: next, overlap: '1h' });
    await publish(60);
    await turnsUntil(() => handled.length >= 120);
    const before = await publisher.sign('crm', 'order.created', {});
    // No request is in flight, so none can time out.
    await clock.advance(signsFrom.getTime() - clock.now());
    await publish(60);
    await turnsUntil(() => handled.length >= 180);
    const after = await publisher.sign('crm', 'order.created', {});

    expect(new Set(handled).size).toBe(180);
    expect(logger.lines.filter((line) => /http_4/.test(line))).toEqual([]);
    expect([kidOf(before.token) === kid, kidOf(after.token)]).toEqual([false, kid]);
  });

  it('are visible to every process that shares the store', async () => {
    const clock = new TestClock();
    const { handled, url } = await receiverOf([own], clock);
    const shared = {
      endpointStore: new MemoryEndpointStore(),
      sealingKeys: [{ id: '1', key: 'the sealing key of this test, 32 bytes' }],
    };
    const first = await publisherOf(shared, clock);
    const second = await publisherOf(shared, clock);
    await first.endpoints.create({ id: 'crm', url, secret: own, subject: 'crm' });

    await second.publisher.publish('order.created', {}, { id: 'one' });
    await turnsUntil(() => handled.length >= 1);
    await first.endpoints.disable('crm');
    await second.publisher.publish('order.created', {}, { id: 'two' });
    await first.endpoints.enable('crm');
    await second.publisher.publish('order.created', {}, { id: 'three' });
    await turnsUntil(() => handled.length >= 2);

    expect(handled).toEqual(['crm order.created one', 'crm order.created three']);
  });
});

it('managed endpoints throw without a publisher', async () => {
  started.push(await startApp(createExpress()));
  const endpoints = started[0]!.app.get(WebhookEndpoints);

  for (const call of [endpoints.create({ url: 'https://a.example' }), endpoints.list()]) {
    await expect(call).rejects.toBeInstanceOf(WebhookConfigurationError);
  }
});

it('a durable endpoint store without sealing keys fails start-up', async () => {
  class DurableStore extends MemoryEndpointStore {
    override readonly durable = true as never;
  }
  const start = (sealingKeys?: { id: string; key: string }[]): Promise<StartedApp> =>
    startApp(createExpress(), {
      options: {
        publisher: { issuer: ISSUER, secret, endpointStore: new DurableStore(), sealingKeys },
      },
    });

  await expect(start()).rejects.toMatchObject({
    problems: [
      {
        path: 'publisher.sealingKeys',
        message: expect.stringContaining('openssl rand -base64 32'),
      },
    ],
  });
  const twice = { id: 'a', key: 'short' };
  await expect(start([twice, twice])).rejects.toMatchObject({
    problems: [
      { path: 'publisher.sealingKeys[0].key' },
      { path: 'publisher.sealingKeys[1].key' },
      { path: 'publisher.sealingKeys[1].id' },
    ],
  });
});

const first = { id: '1', key: 'the first sealing key of this test, 32 bytes' };
const second = { id: '2', key: 'the second sealing key of this test, 32 bytes' };

/** Starts an application on a store, which is new in each test, with sealing keys. */
function starterOn(endpointStore = new MemoryEndpointStore()) {
  return async (
    sealingKeys: { id: string; key: string }[],
    checkStores = true,
  ): Promise<WebhookEndpoints> => {
    const publisher = { issuer: ISSUER, secret, endpointStore, sealingKeys };
    const one = await startApp(createExpress(), { options: { publisher, checkStores } });
    started.push(one);
    return one.app.get(WebhookEndpoints);
  };
}

it('sealing keys that decrypt no stored secret fail start-up', async () => {
  const start = starterOn();
  const sealedByFirst = await start([first]);
  await sealedByFirst.create({ id: 'crm', url: 'https://crm.example/' });

  await expect(start([second])).rejects.toMatchObject({
    problems: [
      {
        path: 'publisher.endpointStore',
        message: expect.stringMatching(
          /^The secret of endpoint "crm" cannot be decrypted without the key "1", which is not among the sealingKeys: add it after the first, or rotate the endpoint's key with overlap 0\. .* checkStores: false/,
        ),
      },
    ],
  });
  await expect(start([{ ...first, key: second.key }])).rejects.toMatchObject({
    problems: [{ message: expect.stringContaining('the sealing key has changed') }],
  });

  const sealedBySecond = await start([second, first]);
  await sealedBySecond.create({ id: 'erp', url: 'https://erp.example/' });
  await expect(start([second])).resolves.toBeDefined();
});

it('sealing keys that decrypt no stored credentials fail start-up, until these are set again', async () => {
  const start = starterOn();
  const credentials = { headers: { 'x-api-key': 'the key of the gateway' } };
  const input = { id: 'crm', url: 'https://crm.example/', signing: 'publisher' as const };
  await (await start([first])).create({ ...input, credentials });

  await expect(start([second])).rejects.toMatchObject({
    problems: [
      {
        path: 'publisher.endpointStore',
        message: expect.stringMatching(
          /credentials of endpoint "crm" .* "1", which is not among .* update the endpoint with its credentials again\. No secret of the first 20 endpoints/,
        ),
      },
    ],
  });
  await expect(start([{ ...first, key: second.key }])).rejects.toMatchObject({
    problems: [{ message: expect.stringContaining('with its credentials again') }],
  });

  await (await start([second], false)).update('crm', { credentials });
  await expect(start([second])).resolves.toBeDefined();
});

/** Waits for requests without advancing the clock. */
async function turnsUntil(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 20_000 && !condition(); turn++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  // Some more turns, so that a surplus event can arrive.
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

function kidOf(token: string): unknown {
  const header = Buffer.from(token.split('.')[0]!, 'base64url').toString();
  return (JSON.parse(header) as { kid?: string }).kid;
}
