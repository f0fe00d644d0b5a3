import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { ExpressAdapter } from '@nestjs/platform-express';
import {
  MemoryEndpointStore,
  WebhookEndpoints,
  type WebhookPublisherOptions,
} from 'nestjs-webhook-token';
import type { ConsoleApi } from 'nestjs-webhook-token/console';
import { PostgresEndpointStore, PostgresQueue } from 'nestjs-webhook-token/postgres';
import { TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { ALL_CAPABILITIES, call, type ConsoleApp, startConsole } from '../fixtures/console-app.js';
import { Gate } from '../fixtures/gate.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, until } from '../postgres/database.js';

const API = '/webhooks/console/api';
const RECOVERY = `${API}/endpoints/crm/recovery`;

const sealingKeys = [{ id: '1', key: Buffer.alloc(32, 7).toString('base64') }];

async function recovery({ origin }: ConsoleApp): Promise<ConsoleApi.RecoveryRow | undefined> {
  const { json } = await call(origin, 'GET', RECOVERY);
  return (json as ConsoleApi.RecoveryAnswer).recovery;
}

async function recent({ origin }: ConsoleApp): Promise<readonly ConsoleApi.ActivityRow[]> {
  return ((await call(origin, 'GET', `${API}/activity`)).json as unknown as ConsoleApi.ActivityList)
    .items;
}

describe.each(adapters)('recovery of an endpoint on %s', (_, create) => {
  let started: ConsoleApp;
  afterEach(() => started?.app.close());

  /** An application whose endpoint has missed three events, and works again. */
  async function startAfterOutage(
    perMinute: number,
    publisher?: Partial<WebhookPublisherOptions>,
  ): Promise<TestClock> {
    const clock = new TestClock();
    let status = 500;
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES, actor: () => 'ada' },
      {
        clock,
        status: () => status,
        publisher: { endpointLimits: { redeliveriesPerMinute: perMinute }, ...publisher },
      },
    );
    for (let n = 0; n < 3; n++) {
      await started.publish('order.created', { n });
      await clock.advance(1_000);
    }
    status = 200;
    return clock;
  }

  it('counts first, then sends as many a minute as the limits allow, one recovery at a time', async () => {
    const clock = await startAfterOutage(2);
    const { origin } = started;
    const since = new Date(clock.now() - 2_500).toISOString();
    const preview = await call(origin, 'POST', RECOVERY, { dryRun: true });
    const part = await call(origin, 'POST', RECOVERY, { dryRun: true, since });
    const begun = await call(origin, 'POST', RECOVERY, { dryRun: false });
    const second = await call(origin, 'POST', RECOVERY, { dryRun: false });
    await until(async () => (await recovery(started))?.sent === 2);
    const before = await recovery(started);
    await clock.advance(60_000);
    await until(async () => (await recovery(started))?.status === 'done');

    expect([preview.json, part.json]).toEqual([
      { dryRun: true, count: 3 },
      { dryRun: true, count: 2 },
    ]);
    expect(begun.json).toMatchObject({ recovery: { status: 'running', total: 3, actor: 'ada' } });
    expect([second.status, second.json?.['code']]).toEqual([409, 'recovery_running']);
    expect(before).toMatchObject({ status: 'running', sent: 2 });
    expect(await recovery(started)).toMatchObject({ status: 'done', total: 3, sent: 3 });
    const delivered = await call(origin, 'GET', `${API}/deliveries?status=delivered`);
    expect((delivered.json as { items: unknown[] }).items).toHaveLength(3);
    expect(await recent(started)).toMatchObject([
      { action: 'endpoint.recover', by: 'operator', target: 'crm', outcome: 'done' },
    ]);
  });

  it('ends when it is cancelled, and can begin again', async () => {
    const clock = await startAfterOutage(1);
    const { origin } = started;
    await call(origin, 'POST', RECOVERY, { dryRun: false });
    await until(async () => (await recovery(started))?.sent === 1);
    const cancelled = await call(origin, 'DELETE', RECOVERY);
    const again = await call(origin, 'DELETE', RECOVERY);
    await clock.advance(60_000);
    const after = await recovery(started);
    await call(origin, 'POST', RECOVERY, { dryRun: false });
    await until(async () => (await recovery(started))?.sent === 1);

    expect(cancelled.json).toMatchObject({ recovery: { status: 'cancelled', sent: 1 } });
    expect(again.status).toBe(404);
    expect(after).toMatchObject({ status: 'cancelled', sent: 1 });
    expect(await recovery(started)).toMatchObject({ status: 'running', total: 2 });
  });

  it('does not hold up a shutdown while the endpoint store does not answer', async () => {
    const endpointStore = new MemoryEndpointStore();
    const clock = await startAfterOutage(1, { endpointStore, sealingKeys });
    const gate = new Gate();
    endpointStore.activity.replace = () => gate.pass() as Promise<never>;
    await call(started.origin, 'POST', RECOVERY, { dryRun: false });
    await gate.reached;

    const closed = started.app.close();
    await clock.advance(2_000);
    await closed;
    gate.open();
  });

  it('does not show the recovery of another tenant whose endpoint had the id before', async () => {
    const endpointStore = new MemoryEndpointStore();
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      { status: () => 500, publisher: { endpoints: [], endpointStore, sealingKeys } },
    );
    const endpoints = started.app.get(WebhookEndpoints);
    const createFor = async (tenant: string) =>
      endpoints.create({ id: 'crm', url: 'https://192.0.2.1/hooks', tenant });
    await createFor('acme');
    await started.publish('order.created', {}, 'acme');
    await call(started.origin, 'POST', RECOVERY, { dryRun: false });
    const own = await recovery(started);
    await endpoints.delete('crm');
    await createFor('globex');
    const after = await recovery(started);
    const { json } = await call(started.origin, 'POST', RECOVERY, { dryRun: false });

    expect(own).toMatchObject({ endpoint: 'crm', tenant: 'acme' });
    expect(after).toBeUndefined();
    expect(json).toMatchObject({ recovery: { endpoint: 'crm', tenant: 'globex' } });
  });

  it('recovers no delivery of a tenant whose endpoint had the id before', async () => {
    const endpointStore = new MemoryEndpointStore();
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      { status: () => 500, publisher: { endpoints: [], endpointStore, sealingKeys } },
    );
    const { origin } = started;
    const endpoints = started.app.get(WebhookEndpoints);
    const url = 'https://192.0.2.1/hooks';
    const published = { orderingKey: 'sku-1' };
    await endpoints.create({ id: 'crm', url, tenant: 'acme', onDead: 'block' });
    const foreign = await started.publish('order.created', {}, 'acme', published);
    await endpoints.delete('crm');
    await endpoints.create({ id: 'crm', url, onDead: 'block' });
    const own = await started.publish('order.created', {}, undefined, published);
    const preview = await call(origin, 'POST', RECOVERY, { dryRun: true });
    const blocked = await call(origin, 'GET', `${API}/endpoints/crm/blocked-keys`);
    await call(origin, 'POST', RECOVERY, { dryRun: false });
    await until(async () => (await recovery(started))?.status === 'done');
    const { status } = (await call(origin, 'GET', `${API}/deliveries/${foreign[0]}`)).json!;

    expect(preview.json).toEqual({ dryRun: true, count: 1 });
    expect(blocked.json).toMatchObject({ items: [{ deliveryId: own[0] }] });
    expect(await recovery(started)).toMatchObject({ total: 1, sent: 1, skipped: 0 });
    expect(status).toBe('dead');
  });

  it('does not send again what dies again', async () => {
    const clock = await startAfterOutage(1_000);
    started.transport.respondWith(500);
    await call(started.origin, 'POST', RECOVERY, { dryRun: false });
    await until(async () => (await recovery(started))?.status === 'done');
    await clock.advance(60_000);

    expect(await recovery(started)).toMatchObject({ sent: 3, skipped: 0 });
  });

  it('refuses a disabled endpoint, and one that does not exist', async () => {
    await startAfterOutage(1_000);
    const { origin } = started;
    await call(origin, 'POST', `${API}/endpoints/crm/disable`, {});
    const disabled = await call(origin, 'POST', RECOVERY, { dryRun: false });
    const unknown = await call(origin, 'GET', `${API}/endpoints/unknown/recovery`);
    const wrong = await call(origin, 'POST', RECOVERY, { dryRun: true, since: 'yesterday' });

    expect([disabled.status, unknown.status, wrong.status]).toEqual([409, 404, 400]);
  });
});

(await describeWith('PostgreSQL'))('recovery of an endpoint on PostgreSQL', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('is continued after a restart, and by another process', async () => {
    const schema = database.newSchema();
    const { pool } = database;
    const clock = new TestClock();
    let status = 500;
    const start = async (): Promise<ConsoleApp> =>
      startConsole(
        new ExpressAdapter(),
        { capabilities: ALL_CAPABILITIES },
        {
          clock,
          status: () => status,
          publisher: {
            // Longer than the steps of the clock below, within which a statement may be under way.
            queue: new PostgresQueue({ pool, schema, timeout: '1h' }),
            endpointStore: new PostgresEndpointStore(pool, { schema, timeout: '30s' }),
            sealingKeys: [{ id: '1', key: Buffer.alloc(32, 7).toString('base64') }],
            endpointLimits: { redeliveriesPerMinute: 1 },
          },
        },
      );
    await new PostgresEndpointStore(pool, { schema, timeout: '60s' }).migrate();
    const first = await start();
    for (let n = 0; n < 3; n++) await first.publish('order.created', { n });
    await clock.advance(1_000);
    status = 200;
    await call(first.origin, 'POST', RECOVERY, { dryRun: false });
    await until(async () => (await recovery(first))?.sent === 1);
    await first.app.close();
    const second = await start();
    const seen = await recovery(second);
    await until(async () => {
      await clock.advance(10_000);
      return (await recovery(second))?.status === 'done';
    });
    const done = await recovery(second);
    const actions = await recent(second);
    await second.app.close();

    expect(seen).toMatchObject({ status: 'running', total: 3, sent: 1 });
    expect(done).toMatchObject({ status: 'done', total: 3, sent: 3 });
    expect(actions.map(({ action }) => action)).toEqual(['endpoint.recover']);
  });
});

describe.each(adapters)('the activity log on %s', (_, create) => {
  let started: ConsoleApp;
  afterEach(() => started?.app.close());

  it('survives a restart, is read page by page, and is pruned', async () => {
    const clock = new TestClock();
    const endpointStore = new MemoryEndpointStore();
    const start = (): Promise<ConsoleApp> =>
      startConsole(
        create(),
        { capabilities: ALL_CAPABILITIES, activity: { keepFor: '1h' } },
        { clock, publisher: { endpointStore, sealingKeys } },
      );
    started = await start();
    for (const step of ['pause', 'resume', 'disable']) {
      await call(started.origin, 'POST', `${API}/endpoints/acme/${step}`, {});
      await clock.advance(1_000);
    }
    await started.app.close();
    started = await start();
    const page = async (query: string): Promise<ConsoleApi.ActivityList> =>
      (await call(started.origin, 'GET', `${API}/activity?${query}`))
        .json as unknown as ConsoleApi.ActivityList;
    const first = await page('limit=2');
    const rest = await page(`limit=2&after=${first.next}`);
    const ofTenant = await page('tenant=globex');
    const wrong = await call(started.origin, 'GET', `${API}/activity?after=x`);
    await clock.advance(2 * 3_600_000);

    expect(first.items).toMatchObject([
      { action: 'endpoint.disable', target: 'acme', tenant: 'acme', by: 'operator' },
      { action: 'endpoint.resume' },
    ]);
    expect(rest).toMatchObject({ items: [{ action: 'endpoint.pause' }] });
    expect(rest).not.toHaveProperty('next');
    expect(ofTenant.items).toEqual([]);
    expect(wrong.status).toBe(400);
    await until(async () => (await recent(started)).length === 0);
  });
});
