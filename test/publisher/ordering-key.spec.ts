import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable, ServiceUnavailableException } from '@nestjs/common';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookDeliveries,
  WebhookPublisher,
  type WebhookEndpointOptions,
  type WebhookEvent,
} from '../../lib/index.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { freePort } from '../fixtures/free-port.js';
import { SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';

const ISSUER = 'https://warehouse.example';

interface Level {
  readonly sku: string;
  readonly level: number;
}

/** A receiver that fails some requests. */
@Injectable()
class Stock {
  requests = 0;
  fails = (request: number): boolean => request % 3 === 0;
  readonly seen: { readonly level: Level; readonly key?: string; readonly sequence?: number }[] =
    [];

  @OnWebhookEvent('stock.changed')
  on(level: Level, { orderingKey: key, sequence }: WebhookEvent): void {
    if (this.fails(++this.requests)) throw new ServiceUnavailableException();
    this.seen.push({ level, key, sequence });
  }

  levelsOf(sku: string): number[] {
    return this.seen.filter(({ level }) => level.sku === sku).map(({ level }) => level.level);
  }
}

describe.each(adapters)('an event with an ordering key, on %s', (_, createAdapter) => {
  let clock: TestClock;
  let queue: InProcessQueue;
  let started: StartedApp;
  let stock: Stock;
  let publisher: WebhookPublisher;
  let deliveries: WebhookDeliveries;

  const start = async (endpoint: Partial<WebhookEndpointOptions> = {}, attempts = 5) => {
    const port = await freePort();
    started = await startApp(createAdapter(), {
      options: {
        clock,
        receiver: { path: 'webhooks', issuers: [{ issuer: ISSUER, secret: SECRET }] },
        publisher: {
          issuer: ISSUER,
          secret: SECRET,
          endpoints: [{ id: 'shop', url: `http://127.0.0.1:${port}/webhooks`, ...endpoint }],
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          retry: { attempts, schedule: ['0s', '10s'], jitter: 0 },
          queue,
        },
      },
      providers: [Stock],
      port,
    });
    stock = started.app.get(Stock);
    publisher = started.app.get(WebhookPublisher);
    deliveries = started.app.get(WebhookDeliveries);
  };

  const change = async (sku: string, level: number) =>
    publisher.publish('stock.changed', { sku, level }, { orderingKey: sku });

  /** Lets time pass until no delivery is pending. */
  const settle = async () => {
    for (let round = 0; round < 100; round++) {
      await queue.flush();
      if ((await deliveries.stats()).pending === 0) return;
      await clock.advance(10_000);
    }
    throw new Error('Deliveries are still pending.');
  };

  beforeEach(() => {
    clock = new TestClock();
    queue = new InProcessQueue({ clock });
  });
  afterEach(async () => {
    const closed = started.app.close();
    await clock.advance(60_000);
    await closed;
  });

  it('arrives in order although the receiver fails every third request', async () => {
    await start();
    for (let level = 1; level <= 10; level++) {
      await change('sku-1', level);
      await change('sku-2', level);
    }
    await settle();

    for (const sku of ['sku-1', 'sku-2']) {
      expect(stock.levelsOf(sku)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
      const own = stock.seen.filter(({ key }) => key === sku);
      const first = own[0]!.sequence!;
      expect(own.map(({ sequence }) => sequence! - first)).toEqual([...Array(10).keys()]);
    }
  });

  it('is listed as waiting behind one that waits for its retry', async () => {
    await start();
    stock.fails = () => true;
    await change('sku-1', 1);
    await change('sku-1', 2);
    await queue.flush();

    const { deliveries: listed } = await deliveries.list();
    expect(listed.map(({ orderingKey, keyState }) => [orderingKey, keyState])).toEqual(
      expect.arrayContaining([
        ['sku-1', 'waiting'],
        ['sku-1', undefined],
      ]),
    );
  });

  it('leaves a gap in the numbers where one is dead', async () => {
    await start({}, 1);
    stock.fails = (request) => request === 2;
    for (const level of [1, 2, 3]) await change('sku-1', level);
    await settle();

    expect(stock.levelsOf('sku-1')).toEqual([1, 3]);
    expect(stock.seen[1]!.sequence! - stock.seen[0]!.sequence!).toBe(2);
  });

  it("waits behind a dead one of an endpoint with onDead: 'block' until it is skipped", async () => {
    await start({ onDead: 'block' }, 1);
    stock.fails = (request) => request === 1;
    for (const level of [1, 2]) await change('sku-1', level);
    await queue.flush();
    const [dead] = (await deliveries.list({ status: 'dead' })).deliveries;
    expect(dead).toMatchObject({ keyState: 'blocking', orderingKey: 'sku-1' });
    expect(stock.seen).toEqual([]);

    expect(await deliveries.skip(dead!.id)).toBe(true);
    expect(await deliveries.skip(dead!.id)).toBe(false);
    await settle();
    expect(stock.levelsOf('sku-1')).toEqual([2]);
    await expect(deliveries.skip('unknown')).rejects.toThrow(/no delivery with this id/);
  });

  it('continues with the dead one once that is redelivered', async () => {
    await start({ onDead: 'block' }, 1);
    stock.fails = (request) => request === 1;
    for (const level of [1, 2]) await change('sku-1', level);
    await queue.flush();
    const [dead] = (await deliveries.list({ status: 'dead' })).deliveries;

    await deliveries.redeliver(dead!.id);
    await settle();
    expect(stock.levelsOf('sku-1')).toEqual([1, 2]);
  });

  it('keeps its number when it is sent again after it was delivered', async () => {
    await start();
    stock.fails = () => false;
    for (const level of [1, 2]) await change('sku-1', level);
    await settle();
    const [, first] = (await deliveries.list()).deliveries.toSorted(
      (a, b) => b.sequence! - a.sequence!,
    );

    const { deliveries: redelivered } = await deliveries.redeliver(first!.id);
    await settle();
    const again = await deliveries.get(redelivered[0]!.as!);
    expect(again).toMatchObject({ status: 'delivered', sequence: first!.sequence, round: 2 });
  });

  it('is refused by send, which would have to wait', async () => {
    await start();
    const options = { orderingKey: 'sku-1' };
    await expect(publisher.send('shop', 'stock.changed', {}, options)).rejects.toMatchObject({
      code: 'unsupported_option',
    });
    await expect(publisher.publish('stock.changed', {}, { orderingKey: '' })).rejects.toMatchObject(
      { code: 'invalid_option' },
    );
  });
});
