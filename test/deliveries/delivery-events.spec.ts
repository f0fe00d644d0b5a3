import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { HttpModule } from '@nestjs/axios';
import { Injectable, type Provider, Scope } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  OnWebhookDelivery,
  WebhookDeliveryEvents,
  WebhookDestinationBlockedError,
  WebhookPublisher,
  WebhookSigner,
  type WebhookDeliveryEvent,
  type WebhookEndpointOptions,
} from 'nestjs-webhook-token';
import { receiverOptions, SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const DAY = 86_400_000;

@Injectable()
class Alerts {
  static seen: WebhookDeliveryEvent[] = [];

  @OnWebhookDelivery('exhausted', 'endpoint-disabled')
  alert(event: WebhookDeliveryEvent): void {
    Alerts.seen.push(event);
  }

  @OnWebhookDelivery('delivered')
  async fails(): Promise<void> {
    throw new Error('the pager is down');
  }
}

let receiver: WireReceiver;
let clock: TestClock;
let started: StartedApp | undefined;
let told: WebhookDeliveryEvent[];

beforeEach(async () => {
  receiver = await WireReceiver.start();
  clock = new TestClock();
  Alerts.seen = [];
});
afterEach(async () => {
  const closed = started?.app.close();
  await clock.advance(60_000);
  await closed;
  started = undefined;
  await receiver.stop();
});

async function start(
  endpoint: Partial<WebhookEndpointOptions> = {},
  attempts = 3,
  wait = '10s',
  httpModule?: ReturnType<typeof HttpModule.register>,
  providers: Provider[] = [],
  disableAfter?: string,
): Promise<void> {
  started = await startApp(new ExpressAdapter(), {
    options: {
      httpModule,
      clock,
      publisher: {
        issuer: 'https://billing.example',
        secret: SECRET,
        endpoints: [{ id: 'crm', url: receiver.url, tenant: 'acme', ...endpoint }],
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        retry: { attempts, schedule: ['0s', wait], jitter: 0 },
        disableAfter,
      },
    },
    providers: [Alerts, ...providers],
  });
  told = [];
  started.app.get(WebhookDeliveryEvents).events$.subscribe((event) => told.push(event));
}

const publish = () =>
  started!.app.get(WebhookPublisher).publish('order.created', { id: 1 }, { tenant: 'acme' });

/** Advances the clock until this many events were emitted. */
async function untilTold(count: number, step = 1_000): Promise<void> {
  for (let round = 0; told.length < count; round++) {
    if (round > 2_000) throw new Error(`only ${told.length} of ${count} were told`);
    await clock.advance(step);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe('delivery events', () => {
  it('report every failure with its status and next attempt, then the end', async () => {
    await start();
    receiver.script = () => ({ status: 500 });
    const { id, deliveries } = await publish();
    await untilTold(3);

    const facts = {
      deliveryId: deliveries[0]!.id,
      eventId: id,
      event: 'order.created',
      endpointId: 'crm',
      tenant: 'acme',
      statusCode: 500,
      reason: 'http_500',
    };
    expect(told).toEqual([
      {
        ...facts,
        type: 'retry-scheduled',
        attempts: 1,
        at: expect.any(Date),
        nextAttemptAt: expect.any(Date),
      },
      {
        ...facts,
        type: 'retry-scheduled',
        attempts: 2,
        at: expect.any(Date),
        nextAttemptAt: expect.any(Date),
      },
      { ...facts, type: 'exhausted', attempts: 3, at: expect.any(Date) },
    ]);
    expect(told[0]!.nextAttemptAt!.getTime()).toBe(told[0]!.at.getTime() + 10_000);
    expect(Alerts.seen).toEqual([told[2]]);
  });

  it('report a delivery, and only log the error of a reaction', async () => {
    await start();
    await publish();
    await untilTold(1);

    expect(told).toMatchObject([{ type: 'delivered', attempts: 1, statusCode: 204 }]);
    expect(receiver.requests).toHaveLength(1);
    expect(started!.logger.lines.join('\n')).toMatch(/Alerts\.fails failed on "delivered"/);
  });

  it('ignore a logger that throws', async () => {
    const rejections: unknown[] = [];
    const hear = (reason: unknown): void => void rejections.push(reason);
    process.on('unhandledRejection', hear);
    await start();
    started!.logger.error = () => {
      throw new Error('the disk of the log is full');
    };
    await publish();
    await untilTold(1);
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', hear);

    expect(rejections).toEqual([]);
  });

  it('report once that an endpoint is gone', async () => {
    await start();
    receiver.script = () => ({ status: 410 });
    await publish();
    await untilTold(2);

    expect(told.map(({ type }) => type)).toEqual(['exhausted', 'endpoint-disabled']);
    expect(Alerts.seen).toHaveLength(2);
  });

  it('report a destination that the egress guard refuses', async () => {
    // As if the host resolved to another address than at start-up.
    const adapter = async (): Promise<never> => {
      throw new WebhookDestinationBlockedError('it is in 10.0.0.0/8');
    };
    await start({}, 3, '10s', HttpModule.register({ adapter }));
    await publish();
    await untilTold(1);

    expect(told[0]!.type).toBe('destination-blocked');
    expect(receiver.connections).toBe(0);
  });
});

describe('an endpoint that keeps failing', () => {
  it('is paused: its deliveries wait without using attempts until a trial succeeds', async () => {
    await start({}, 10);
    receiver.script = () => ({ status: 500 });
    for (let i = 0; i < 5; i++) await publish();
    await untilTold(6, 0);
    expect(told.map(({ type }) => type)).toContain('circuit-opened');
    const before = receiver.requests.length;
    for (let i = 0; i < 5; i++) await publish();
    await clock.advance(20_000);
    expect(receiver.requests).toHaveLength(before);

    receiver.script = () => ({ status: 204 });
    await untilTold(6 + 10 + 1);
    const delivered = told.filter(({ type }) => type === 'delivered');
    expect(told.map(({ type }) => type)).toContain('circuit-closed');
    expect(delivered).toHaveLength(10);
    expect(delivered.filter(({ attempts }) => attempts === 1)).toHaveLength(5);
  });

  it('is not blamed for a key service that is down', async () => {
    class Down extends WebhookSigner {
      readonly alg = 'ES256';
      async sign(): Promise<Uint8Array> {
        throw new Error('the key service is down');
      }
    }
    await start({ key: new Down() }, 10);
    for (let i = 0; i < 8; i++) await publish();
    await untilTold(8, 0);

    expect(new Set(told.map(({ type, reason }) => `${type} ${reason}`))).toEqual(
      new Set(['retry-scheduled signing_failed']),
    );
  });

  it.each([
    ['5 days', undefined, 5 * DAY],
    ['36 hours', '36h', 1.5 * DAY],
    ['6 hours', '6h', DAY / 4],
  ])('is disabled after %s without a success', async (time, disableAfter, ms) => {
    await start({}, 1_000, '1h', undefined, [], disableAfter);
    receiver.script = () => ({ status: 500 });
    const began = clock.now();
    await publish();
    while (!told.some(({ type }) => type === 'endpoint-disabled')) {
      if (clock.now() - began > 6 * DAY) throw new Error('it was never disabled');
      await clock.advance(3_600_000);
      await new Promise((resolve) => setImmediate(resolve));
    }

    expect(clock.now() - began).toBeGreaterThanOrEqual(ms);
    expect(started!.logger.lines.join('\n')).toContain(`failed every attempt for ${time} `);
    expect(await publish()).toMatchObject({ deliveries: [] });
  });
});

describe('@OnWebhookDelivery', () => {
  it('calls the methods of instances that a factory or a value provides, once each', async () => {
    class Counter {
      delivered = 0;

      @OnWebhookDelivery('delivered')
      count(): void {
        this.delivered++;
      }
    }
    const value = new Counter();
    await start({}, 3, '10s', undefined, [
      Counter,
      { provide: 'factory', useFactory: async () => new Counter() },
      { provide: 'value', useValue: value },
      { provide: 'same', useFactory: () => value },
      { provide: 'alias', useExisting: Counter },
      { provide: 'nothing', useValue: Object.create(null) },
    ]);
    await publish();
    await untilTold(1);

    const counters = [Counter, 'factory', 'value'].map((token) => started!.app.get(token));
    expect(counters.map(({ delivered }) => delivered)).toEqual([1, 1, 1]);
  });

  it('refuses an unknown event, and a request-scoped or transient provider, at start-up', async () => {
    class Wrong {
      @OnWebhookDelivery('lost' as 'exhausted')
      on(): void {}

      @OnWebhookDelivery('exausted' as 'exhausted')
      off(): void {}
    }
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest {
      @OnWebhookDelivery('exhausted')
      on(): void {}
    }
    @Injectable({ scope: Scope.TRANSIENT })
    class PerConsumer {
      @OnWebhookDelivery('exhausted')
      on(): void {}
    }
    class Made {
      @OnWebhookDelivery('exhausted')
      on(): void {}
    }
    const factory = { provide: Made, scope: Scope.REQUEST, useFactory: () => new Made() };
    const providers = [Wrong, PerRequest, PerConsumer, factory];
    const starting = startApp(new ExpressAdapter(), { providers });

    await expect(starting).rejects.toMatchObject({
      code: 'invalid_configuration',
      problems: [
        { path: 'Wrong.on', message: expect.stringContaining('"lost"') },
        { path: 'Wrong.off', message: expect.stringContaining('did you mean "exhausted"?') },
        { path: 'PerRequest.on', message: expect.stringContaining('request-scoped') },
        { path: 'PerConsumer.on', message: expect.stringContaining('transient') },
        { path: 'Made.on', message: expect.stringContaining('request-scoped') },
      ],
    });
  });

  it('logs a warning without a publisher', async () => {
    class Alerts {
      @OnWebhookDelivery('exhausted')
      alert(): void {}
    }
    started = await startApp(new ExpressAdapter(), {
      options: { ...receiverOptions(), publisher: undefined },
      providers: [Alerts],
    });

    expect(started.logger.at('warn').join()).toContain('Alerts.alert is never called');
  });
});
