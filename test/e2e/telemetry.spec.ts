import type { IncomingMessage, Server } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable } from '@nestjs/common';
import { context, propagation, ROOT_CONTEXT, SpanKind, trace } from '@opentelemetry/api';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import type { DeliveryCounts, WebhookQueue } from 'nestjs-webhook-token/ports';
import { TestClock } from 'nestjs-webhook-token/testing';
import { WebhookTelemetryModule } from 'nestjs-webhook-token/opentelemetry';
import {
  WebhookDeliveries,
  WebhookModule,
  WebhookPublisher,
  InProcessQueue,
  OnWebhookEvent,
  WebhookRoute,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { head } from '../fixtures/http-client.js';
import { ISSUER, SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeSpan, TelemetryRecorder } from '../fixtures/telemetry-recorder.js';

const HIDDEN = 'card-4111';
const MINUTE = 60_000;
const TRACEPARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

let failures = 0;
let onHandled = (): void => undefined;

@Injectable()
class Orders {
  @OnWebhookEvent('**')
  on(): void {
    onHandled();
    if (failures-- > 0) throw new Error(`declined: ${HIDDEN}`);
  }
}

@Controller()
class Own {
  @WebhookRoute('own')
  receive(): void {}
}

describe.each(adapters)('telemetry on %s', (_, createAdapter) => {
  let recorder: TelemetryRecorder;
  let started: StartedApp;
  let clock: TestClock;
  let publisher: WebhookPublisher;
  let signed: (event: string) => string;
  beforeAll(async () => {
    recorder = new TelemetryRecorder();
    clock = new TestClock();
    const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => clock.now() });
    signed = (event) => signer.sign({ event }) as string;
    started = await startApp(createAdapter(), {
      options: {
        clock,
        receiver: [
          { name: 'default', path: 'webhooks', issuers: [{ issuer: ISSUER, secret: SECRET }] },
          {
            name: 'later',
            path: 'later',
            issuers: [{ issuer: ISSUER, secret: SECRET }],
            acknowledge: 'queued',
            queue: new InProcessQueue({ clock }),
            retry: { schedule: ['0s', 2 * MINUTE], jitter: 0 },
          },
        ],
        publisher: {
          issuer: ISSUER,
          secret: SECRET,
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          queue: new InProcessQueue({ clock }),
          retry: { schedule: ['0s', 2 * MINUTE], jitter: 0 },
        },
      },
      imports: [WebhookTelemetryModule.forRoot()],
      providers: [Orders],
      controllers: [Own],
    });
    publisher = started.app.get(WebhookPublisher);
  });
  afterAll(async () => {
    await started.app.close();
    recorder.close();
  });
  beforeEach(() => {
    failures = 0;
    onHandled = () => undefined;
    recorder.reset();
  });

  const spans = (): string[] =>
    recorder.spans.map((span) => describeSpan(span, recorder.spans)).sort();
  const traces = (): Set<string> =>
    new Set(recorder.spans.map((span) => span.spanContext().traceId));

  it('shows publish, attempt, request and handler in one trace, and links the attempt to the publish', async () => {
    await recorder.within('checkout', () =>
      publisher.send(`${started.origin}/webhooks`, 'order.created', { id: 1 }),
    );

    expect(spans()).toEqual([
      'CLIENT send order.created < checkout ~ publish order.created',
      'CONSUMER process order.created < HEAD /webhooks',
      'INTERNAL checkout < none',
      'PRODUCER publish order.created < checkout',
      'SERVER HEAD /webhooks < send order.created',
    ]);
    expect(traces().size).toBe(1);
    const deliveries = started.app.get(WebhookDeliveries);
    const { deliveries: logged } = await deliveries.list();
    expect((await deliveries.get(logged[0]!.id))?.traceId).toBe([...traces()][0]);
  });

  it('gives a publish without an active span a root, so that its attempt is no child of it', async () => {
    await publisher.send(`${started.origin}/webhooks`, 'order.created', { id: 1 });

    expect(spans()).toEqual([
      'CLIENT send order.created < webhook order.created ~ publish order.created',
      'CONSUMER process order.created < HEAD /webhooks',
      'INTERNAL webhook order.created < none',
      'PRODUCER publish order.created < webhook order.created',
      'SERVER HEAD /webhooks < send order.created',
    ]);
    expect(traces().size).toBe(1);
  });

  it('starts a trace of its own for a late attempt, still linked to the publish', async () => {
    const attempted = new Promise<void>((resolve) => (onHandled = resolve));
    const first = await publisher
      .send(`${started.origin}/webhooks`, 'order.late', 1, {
        delay: 2 * MINUTE,
        signal: AbortSignal.timeout(1),
      })
      .catch(() => 'waits');
    await clock.advance(2 * MINUTE);
    await attempted;
    await recorder.ended('send order.late');

    expect(first).toBe('waits');
    expect(spans()).toEqual([
      'CLIENT send order.late < none ~ publish order.late',
      'CONSUMER process order.late < POST /webhooks',
      'INTERNAL webhook order.late < none',
      'PRODUCER publish order.late < webhook order.late',
      'SERVER POST /webhooks < send order.late',
    ]);
    expect(traces().size).toBe(2);
  });

  it('shows a failed attempt and its late repetition, without a payload or the message of an error', async () => {
    failures = 1;
    const first = await publisher.send(`${started.origin}/webhooks?key=${HIDDEN}`, 'order.paid', {
      card: HIDDEN,
    });
    await clock.advance(2 * MINUTE);
    await recorder.ended('send order.paid', 2);

    expect(first.status).toBe('scheduled');
    const attempts = recorder.spans.filter(({ name }) => name === 'send order.paid');
    expect(attempts.map(({ attributes }) => attributes['webhook.outcome'])).toEqual([
      'failed',
      'acknowledged',
    ]);
    expect(attempts[0]).toMatchObject({
      status: { code: 2 },
      attributes: { 'error.type': 'http_500', 'http.response.status_code': 500 },
    });
    expect(attempts[1]).toMatchObject({
      status: { code: 0 },
      attributes: { 'webhook.attempt': 2, 'http.request.resend_count': 1 },
    });
    expect(traces().size).toBe(2);
    const handler = recorder.spans.find(({ name }) => name === 'process order.paid');
    expect(handler).toMatchObject({ attributes: { 'error.type': 'Error' }, status: { code: 2 } });
    const exported = recorder.spans.map(({ name, attributes, events, status }) =>
      JSON.stringify({ name, attributes, events, status }),
    );
    expect(exported.filter((span) => span.includes(HIDDEN) || span.includes('Bearer'))).toEqual([]);
  });

  it('names a server by its address without the brackets of a URL, and its port', async () => {
    const { port } = new URL(started.origin);
    for (const host of ['127.0.0.1', '[::ffff:127.0.0.1]']) {
      await publisher.send(`http://${host}:${port}/webhooks`, 'order.paid', 1);
    }

    const attempts = recorder.spans.filter(({ name }) => name === 'send order.paid');
    expect(attempts).toMatchObject(
      ['127.0.0.1', '::ffff:7f00:1'].map((address) => ({
        attributes: { 'server.address': address, 'server.port': Number(port) },
        status: { code: 0 },
      })),
    );
  });

  it('traces the method of a @WebhookRoute() and its refusals', async () => {
    await publisher.send(`${started.origin}/own`, 'order.created', { id: 1 });
    await head(started.origin, 'no-token', { path: '/own', headers: { traceparent: TRACEPARENT } });

    expect(spans()).toEqual([
      'CLIENT send order.created < webhook order.created ~ publish order.created',
      'CONSUMER process order.created < HEAD /own',
      'INTERNAL webhook order.created < none',
      'PRODUCER publish order.created < webhook order.created',
      'SERVER HEAD /own < none',
      'SERVER HEAD /own < send order.created',
    ]);
  });

  it('continues the trace of a verified request only', async () => {
    const headers = { traceparent: TRACEPARENT, tracestate: 'vendor=1' };
    await head(started.origin, signed('order.known'), { headers });
    await head(started.origin, 'forged', { headers });
    await head(started.origin, signed('order.twice'), {
      headers: { traceparent: [TRACEPARENT, TRACEPARENT] },
    });

    const requests = recorder.spans.filter(({ name }) => name === 'HEAD /webhooks');
    expect(requests.map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual([
      'b7ad6b7169203331',
      undefined,
      undefined,
    ]);
    expect(requests[0]!.spanContext().traceState?.serialize()).toBe('vendor=1');
    expect(requests.map(({ attributes }) => attributes['webhook.situation'])).toEqual([
      'processed',
      'invalid_token',
      'processed',
    ]);
  });

  it('runs the handlers of a queued event in the trace of its request, and later runs in others', async () => {
    failures = 1;
    await publisher.send(`${started.origin}/later`, 'order.queued', { id: 1 });
    await recorder.ended('process order.queued');
    await clock.advance(2 * MINUTE);
    await recorder.ended('process order.queued', 2);

    expect(spans()).toEqual([
      'CLIENT send order.queued < webhook order.queued ~ publish order.queued',
      'CONSUMER process order.queued < HEAD /later ~ HEAD /later',
      'CONSUMER process order.queued < none ~ HEAD /later',
      'INTERNAL webhook order.queued < none',
      'PRODUCER publish order.queued < webhook order.queued',
      'SERVER HEAD /later < send order.queued',
    ]);
    expect(traces().size).toBe(2);
  });

  it('sends no baggage, which may hold personal data', async () => {
    const baggage = propagation.createBaggage({ user: { value: HIDDEN } });
    let headers: string[] = [];
    started.app.getHttpServer().once('request', (request: { rawHeaders: string[] }) => {
      headers = request.rawHeaders;
    });
    await context.with(propagation.setBaggage(ROOT_CONTEXT, baggage), () =>
      publisher.send(`${started.origin}/webhooks`, 'order.created', { id: 1 }),
    );

    const names = headers.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
    expect(names).toContain('traceparent');
    expect(names).not.toContain('baggage');
  });

  it('measures requests, verification, handlers, publishes, attempts and deliveries', async () => {
    failures = 1;
    const sent = await publisher.send(`${started.origin}/webhooks`, 'metric.one', { id: 1 });
    await publisher.send(`${started.origin}/webhooks`, 'metric.two', { id: 1 });
    await head(started.origin, 'forged');

    expect(sent.status).toBe('scheduled');
    const situations = (await recorder.metric('webhook.receive.duration')).map(
      ({ attributes }) => attributes['webhook.situation'],
    );
    expect(situations).toEqual(
      expect.arrayContaining(['processed', 'handler_failed', 'invalid_token', 'queued']),
    );
    const handled = await recorder.metric('messaging.process.duration');
    expect(handled.map(({ attributes }) => attributes)).toContainEqual({
      'messaging.system': 'webhook',
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'messaging.destination.name': 'metric.one',
      'webhook.receiver': 'default',
      'webhook.handler': 'Orders.on',
      'error.type': 'Error',
    });
    const client = await recorder.metric('messaging.client.operation.duration');
    expect(client.map(({ attributes }) => attributes['webhook.outcome'])).toEqual(
      expect.arrayContaining([undefined, 'acknowledged', 'failed']),
    );
    const names = ['webhook.verify.duration', 'webhook.delivery.duration'];
    for (const name of names) expect(await recorder.metric(name)).not.toEqual([]);
    const outcomes = await recorder.metric('webhook.delivery.outcomes');
    expect(outcomes.map(({ attributes }) => attributes)).toEqual([
      { 'webhook.outcome': 'delivered' },
    ]);
  });

  it('reads queue depth, dead letters, lag, circuits and replay entries when metrics are collected', async () => {
    const value = async (name: string): Promise<unknown[]> =>
      (await recorder.metric(name)).map((point) => point.value);
    failures = 1;
    await publisher.send(`${started.origin}/later`, 'order.waiting', { id: 1 });
    await recorder.ended('process order.waiting');

    const queued = await recorder.metric('webhook.queued.pending');
    expect(queued.map(({ value, attributes }) => [value, attributes])).toEqual([
      [1, { 'webhook.receiver': 'later' }],
    ]);
    expect(await value('webhook.queued.dead')).toEqual([0]);
    expect(await value('webhook.queued.lag')).toEqual([0]);
    expect(await value('webhook.delivery.pending')).toEqual([1]);
    expect(await value('webhook.delivery.dead')).toEqual([0]);
    expect(await value('webhook.delivery.lag')).toEqual([0]);
    const circuits = await recorder.metric('webhook.endpoint.circuits');
    expect(circuits.map(({ attributes }) => attributes['webhook.circuit.state'])).toEqual([
      'closed',
      'open',
      'trial',
    ]);
    const replay = await recorder.metric('webhook.replay.entries');
    expect(replay.map(({ attributes }) => attributes['webhook.receiver'])).toEqual([
      'default',
      'later',
    ]);
  });

  it('reports the class of an error, not its name, and a bounded number of classes in metrics', async () => {
    const classes = Array.from({ length: 110 }, (_, index) => `Failure${index}`);
    for (const name of classes) {
      onHandled = () => {
        const { [name]: Failure } = { [name]: class extends Error {} };
        throw Object.assign(new Failure!('failed'), { name: HIDDEN });
      };
      await head(started.origin, signed('order.failed'));
    }

    const handlers = recorder.spans.filter(({ name }) => name === 'process order.failed');
    expect(handlers.map(({ attributes }) => attributes['error.type'])).toEqual(classes);
    const process = await recorder.metric('messaging.process.duration');
    const types = new Set(process.map(({ attributes }) => attributes['error.type']));
    expect(types).toContain('Failure0');
    expect(types).toContain('_OTHER');
    expect(types).not.toContain('Failure109');
    expect(types).not.toContain(HIDDEN);
  });
});

/** A queue that has these counts. */
class CountedQueue extends InProcessQueue {
  answers = true;
  counted: Pick<DeliveryCounts, 'pending' | 'dead' | 'oldestDue'> = { pending: 0, dead: 0 };

  override async counts(): Promise<readonly DeliveryCounts[]> {
    if (!this.answers) return new Promise(() => {});
    return [{ delivered: 0, ...this.counted }];
  }
}

describe('the gauges of two webhook modules', () => {
  let recorder: TelemetryRecorder;
  let started: StartedApp;
  const clock = new TestClock();
  let queue: CountedQueue;
  let otherQueue: CountedQueue;
  let received: CountedQueue;
  let otherReceived: CountedQueue;

  const optionsOf = (path: string, own: WebhookQueue, ofReceiver: WebhookQueue) => ({
    clock,
    isGlobal: false,
    receiver: {
      path,
      issuers: [{ issuer: ISSUER, secret: SECRET }],
      acknowledge: 'queued' as const,
      queue: ofReceiver,
    },
    publisher: { issuer: ISSUER, secret: SECRET, queue: own },
  });
  beforeEach(async () => {
    queue = new CountedQueue();
    otherQueue = new CountedQueue();
    received = new CountedQueue();
    otherReceived = new CountedQueue();
    recorder = new TelemetryRecorder();
    started = await startApp(adapters[0]![1](), {
      options: optionsOf('orders', queue, received),
      imports: [
        WebhookModule.forRoot(optionsOf('invoices', otherQueue, otherReceived)),
        WebhookTelemetryModule.forRoot(),
        // By another module of the application.
        WebhookTelemetryModule.forRoot(),
      ],
    });
  });
  afterEach(async () => {
    await started.app.close();
    recorder.close();
  });
  const values = async (name: string): Promise<unknown[]> =>
    (await recorder.metric(name)).map(({ value }) => value);

  it('report the sum of both, and the larger lag', async () => {
    queue.counted = { pending: 3, dead: 1, oldestDue: clock.now() - 5_000 };
    otherQueue.counted = { pending: 1, dead: 0, oldestDue: clock.now() - 2_000 };
    received.counted = { pending: 2, dead: 0, oldestDue: clock.now() - 1_000 };
    otherReceived.counted = { pending: 5, dead: 4, oldestDue: clock.now() - 3_000 };

    expect(await values('webhook.delivery.pending')).toEqual([4]);
    expect(await values('webhook.delivery.dead')).toEqual([1]);
    expect(await values('webhook.delivery.lag')).toEqual([5]);
    expect(await values('webhook.queued.pending')).toEqual([7]);
    expect(await values('webhook.queued.dead')).toEqual([4]);
    expect(await values('webhook.queued.lag')).toEqual([3]);
    expect(await values('webhook.endpoint.circuits')).toEqual([0, 0, 0]);
    expect(await values('webhook.replay.entries')).toEqual([0]);
  });

  it('add those of another application in the process, until one of both closes', async () => {
    queue.counted = { pending: 3, dead: 1, oldestDue: clock.now() - 5_000 };
    const ofOther = new CountedQueue();
    ofOther.counted = { pending: 1, dead: 2, oldestDue: clock.now() - 7_000 };
    const other = await startApp(adapters[0]![1](), {
      options: optionsOf('orders', ofOther, new CountedQueue()),
      imports: [WebhookTelemetryModule.forRoot()],
    });
    const names = ['webhook.delivery.pending', 'webhook.delivery.dead', 'webhook.delivery.lag'];
    const gauges = async () => Promise.all(names.map(values));
    const both = await gauges();
    await started.app.close();
    const one = await gauges();
    await other.app.close();

    expect([both, one]).toEqual([
      [[4], [3], [7]],
      [[1], [2], [7]],
    ]);
  });

  it('leave out what queues do not answer, all within 2 s', async () => {
    for (const one of [queue, otherQueue, received]) one.answers = false;
    const start = performance.now();

    expect(await recorder.metricNames()).toEqual([
      'webhook.endpoint.circuits',
      'webhook.replay.entries',
    ]);
    expect(performance.now() - start).toBeLessThan(3_500);
  });
});

describe('telemetry with continueTraces: false', () => {
  let recorder: TelemetryRecorder;
  let started: StartedApp;
  beforeAll(async () => {
    recorder = new TelemetryRecorder();
    started = await startApp(adapters[0]![1](), {
      options: { receiver: { path: 'webhooks', issuers: [{ issuer: ISSUER, secret: SECRET }] } },
      imports: [WebhookTelemetryModule.forRoot({ continueTraces: false })],
      providers: [Orders],
    });
  });
  afterAll(async () => {
    await started.app.close();
    recorder.close();
  });
  beforeEach(() => recorder.reset());

  /** Sends a request with a `traceparent`. @returns the span of its receiver, with what it is linked to */
  async function received(token: string): Promise<readonly unknown[]> {
    await head(started.origin, token, { headers: { traceparent: TRACEPARENT } });
    await recorder.ended('HEAD /webhooks');
    const span = recorder.spans.find(({ name }) => name === 'HEAD /webhooks')!;
    const isApart = span.spanContext().traceId !== TRACEPARENT.split('-')[1];
    return [SpanKind[span.kind], isApart, ...span.links.map((link) => link.context.spanId)];
  }
  const signed = (): string =>
    createTokenSigner({ issuer: ISSUER, key: SECRET }).sign({ event: 'order.created' }) as string;

  it('links the trace of a verified request', async () => {
    expect(await received(signed())).toEqual(['SERVER', true, TRACEPARENT.split('-')[2]]);
  });

  it('leaves the trace in which an instrumented server runs it, also for a forged request', async () => {
    const server = started.app.getHttpServer() as Server;
    const emit = server.emit.bind(server);
    const opened: string[] = [];
    server.emit = (event: string, ...args: unknown[]) => {
      if (event !== 'request') return emit(event, ...args);
      const parent = propagation.extract(ROOT_CONTEXT, (args[0] as IncomingMessage).headers);
      const span = trace.getTracer('http').startSpan('HEAD', { kind: SpanKind.SERVER }, parent);
      opened.push(span.spanContext().spanId);
      return context.with(trace.setSpan(parent, span), () => emit(event, ...args));
    };

    expect(await received('forged')).toEqual(['INTERNAL', true, opened[0]]);
    recorder.reset();
    expect(await received(signed())).toEqual(['INTERNAL', true, opened[1]]);
  });
});

describe('WebhookTelemetryModule', () => {
  it('refuses unknown and wrong options', () => {
    const options = { joinTraceFor: 'soon', continueTraces: 1, countDelivery: true };

    expect(() => WebhookTelemetryModule.forRoot(options as object)).toThrow(
      expect.objectContaining({
        problems: expect.arrayContaining(
          ['joinTraceFor', 'continueTraces', 'countDelivery'].map((name) =>
            expect.objectContaining({ path: `WebhookTelemetryModule.${name}` }),
          ),
        ) as unknown,
      }),
    );
  });
});
