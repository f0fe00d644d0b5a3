import { afterEach, describe, expect, it } from '@jest/globals';
import { MemoryEndpointStore, WebhookPublisher } from 'nestjs-webhook-token';
import type { WebhookAlert } from 'nestjs-webhook-token/console';
import { TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { call, type ConsoleApp, startConsole } from '../fixtures/console-app.js';
import { until } from '../postgres/database.js';

const API = '/webhooks/console/api';
const MINUTE = 60_000;

describe.each(adapters)('alerts on %s', (_, create) => {
  const apps: ConsoleApp[] = [];
  const sent: WebhookAlert[] = [];
  let clock: TestClock;
  let fails: boolean;
  let endpointStore: MemoryEndpointStore;
  afterEach(async () => {
    for (const { app } of apps.splice(0)) await app.close();
    sent.length = 0;
  });

  async function start(
    send = (alert: WebhookAlert): unknown => sent.push(alert),
    publisher: object = {},
  ): Promise<ConsoleApp> {
    const sealingKeys = [{ id: '1', key: Buffer.alloc(32, 7).toString('base64') }];
    const started = await startConsole(
      create(),
      {
        capabilities: ['view', 'manage-endpoints'],
        alerts: { send, url: 'https://ops.example/webhooks/console', lag: '5m' },
        portal: { url: 'https://shop.example/portal', secret: 'a-secret-of-the-partner-portal-01' },
      },
      {
        clock,
        status: () => (fails ? 503 : 200),
        publisher: { endpointStore, sealingKeys, timeout: '15m', ...publisher },
      },
    );
    apps.push(started);
    return started;
  }

  function reset(): void {
    clock = new TestClock();
    fails = true;
    endpointStore = new MemoryEndpointStore();
  }

  /** Lets the checks of some minutes run to their ends. */
  async function pass(minutes: number): Promise<void> {
    for (let n = 0; n < minutes; n++) {
      await clock.advance(MINUTE);
      for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
    }
  }

  it('reports an endpoint that fails for some time once, and its recovery', async () => {
    reset();
    const started = await start();
    const at = new Date(clock.now());
    await started.publish('order.created', {}, 'acme');
    await pass(4);
    const early = [...sent];
    await pass(10);
    fails = false;
    await started.publish('order.created', {}, 'acme');
    await pass(2);
    const { json } = await call(started.origin, 'GET', `${API}/activity`);

    expect(early).toEqual([]);
    expect(sent).toEqual([
      {
        type: 'endpoint-failing',
        at: expect.any(Date),
        since: at,
        endpointId: 'acme',
        tenant: 'acme',
        reason: 'http_503',
        consoleUrl: 'https://ops.example/webhooks/console/#/endpoints/acme',
        portalUrl: 'https://shop.example/portal/#/endpoints/acme',
      },
      expect.objectContaining({ type: 'endpoint-recovered', endpointId: 'acme', since: at }),
    ]);
    expect(json).toMatchObject({
      items: [
        {
          action: 'endpoint.failing',
          by: 'system',
          tenant: 'acme',
          target: 'acme',
          outcome: 'done',
          endedAt: expect.any(String),
        },
      ],
    });
  });

  it('are sent by one of several processes, again if that fails, and not again after a restart', async () => {
    reset();
    let isDown = true;
    const send = (alert: WebhookAlert): void => {
      if (isDown) throw new Error('no mail server');
      sent.push(alert);
    };
    const first = await start(send);
    const second = await start(send);
    for (const { publish } of [first, second]) await publish('order.created', {}, 'acme');
    await pass(7);
    isDown = false;
    await pass(7);
    for (const { app } of apps.splice(0)) await app.close();
    const third = await start(send);
    await third.publish('order.created', {}, 'acme');
    await pass(7);

    expect(sent.map(({ type }) => type)).toEqual(['endpoint-failing']);
    expect(first.logger.lines.join('\n')).not.toContain('no mail server');
  });

  it('reports deliveries that are late, and when they are not any more', async () => {
    reset();
    fails = false;
    const { transport, app } = await start();
    let release = (): void => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    transport.respondWith(async () => {
      await released;
      return 204;
    });
    await app.get(WebhookPublisher).publish('order.created', {}, { tenant: 'acme' });
    await pass(8);
    const late = [...sent];
    release();
    await pass(3);

    expect(late).toMatchObject([
      { type: 'queue-lagging', consoleUrl: 'https://ops.example/webhooks/console/' },
    ]);
    expect(late[0]!.lagMs).toBeGreaterThanOrEqual(5 * MINUTE);
    expect(sent.map(({ type }) => type)).toEqual(['queue-lagging', 'queue-recovered']);
  });

  it('reports the recovery of an endpoint although fifty others failed after it', async () => {
    reset();
    fails = false;
    const ids = ['old', ...Array.from({ length: 52 }, (_, n) => `e${n}`)];
    const urlOf = (id: string) => `https://192.0.2.1/${id}/`;
    const endpoints = ids.map((id) => ({ id, tenant: id, url: urlOf(id) }));
    const { transport, publish } = await start(undefined, { endpoints });
    const answer = async (which: readonly string[], status: number): Promise<void> => {
      for (const id of which) {
        transport.script(urlOf(id), status);
        await publish('order.created', {}, id);
      }
    };
    await answer(['old'], 503);
    await pass(7);
    await answer(ids.slice(1), 503);
    await pass(7);
    await answer(ids, 204);
    await pass(2);

    const of = (type: WebhookAlert['type']): string[] =>
      sent.filter((alert) => alert.type === type).map(({ endpointId }) => String(endpointId));
    expect(of('endpoint-failing').toSorted()).toEqual(ids.toSorted());
    expect(of('endpoint-recovered').toSorted()).toEqual(ids.toSorted());
  });

  it('says nothing of an endpoint that an operator has disabled', async () => {
    reset();
    const started = await start();
    await started.publish('order.created', {}, 'acme');
    await call(started.origin, 'POST', `${API}/endpoints/acme/disable`, {});
    await pass(10);

    expect(sent).toEqual([]);
  });

  it('reports an endpoint that is gone', async () => {
    reset();
    const started = await start();
    started.transport.respondWith(410);
    await started.publish('order.created', {}, 'acme');
    await until(async () => {
      await pass(1);
      return sent.length > 0;
    });

    expect(sent).toMatchObject([{ type: 'endpoint-disabled', endpointId: 'acme', reason: 'gone' }]);
  });
});
