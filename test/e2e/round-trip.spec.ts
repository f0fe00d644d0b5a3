import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { HttpModule, HttpService } from '@nestjs/axios';
import { BadRequestException, Injectable, NotFoundException } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { InMemoryWebhookTransport, signWebhook } from 'nestjs-webhook-token/testing';
import {
  InProcessQueue,
  type WebhookPublisherOptions,
  WebhookPublisher,
  OnWebhookEvent,
  type WebhookEvent,
  WebhookModule,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

let seen: WebhookEvent[] = [];
let failures = 0;
let failure = new Error('not yet');
let runs = 0;
let onSeen = (): void => undefined;

@Injectable()
class Everything {
  @OnWebhookEvent('**')
  on(_: unknown, event: WebhookEvent): void {
    runs++;
    if (failures-- > 0) throw failure;
    seen.push(event);
    onSeen();
  }
}

function publisherOptions(more: Partial<WebhookPublisherOptions> = {}): WebhookPublisherOptions {
  return {
    issuer: ISSUER,
    secret: SECRET,
    allowHttp: true,
    allowedAddresses: ['127.0.0.1'],
    ...more,
  };
}

describe.each(adapters)('from a publisher to a receiver on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let sender: StartedApp | undefined;
  let publisher: WebhookPublisher;
  const startSender = async (more: Partial<WebhookPublisherOptions> = {}): Promise<void> => {
    sender = await startApp(createAdapter(), { options: { publisher: publisherOptions(more) } });
    publisher = sender.app.get(WebhookPublisher);
  };
  beforeEach(async () => {
    seen = [];
    failures = 0;
    failure = new Error('not yet');
    runs = 0;
    receiver = await startApp(createAdapter(), {
      options: receiverOptions(),
      providers: [Everything],
    });
  });
  afterEach(async () => {
    await sender?.app.close();
    await receiver.app.close();
  });
  const to = (): string => `${receiver.origin}/webhooks`;

  it.each([new NotFoundException(), new BadRequestException()])(
    'a handler that throws %s runs once in an attempt, also by HEAD',
    async (thrown) => {
      await startSender();
      failures = 1;
      failure = thrown;

      const { statusCode } = await publisher.send(to(), 'order.created', { id: 1 });

      expect(statusCode).toBe(thrown.getStatus());
      expect(runs).toBe(1);
    },
  );

  it('a small object is sent inline by HEAD, everything else by POST', async () => {
    await startSender();
    const large = { rows: Array.from({ length: 10_000 }, (__, i) => ({ i, text: `row ${i}` })) };
    const csv = Buffer.from('id;name\n1;Ä\n');
    const binary = Buffer.alloc(5_000_000, 7);

    const results = [
      await publisher.send(to(), 'a.small', { id: 1 }),
      await publisher.send(to(), 'a.large', large),
      await publisher.send(to(), 'a.list', [1, 2]),
      await publisher.send(to(), 'a.csv', csv, { contentType: 'text/csv' }),
      await publisher.send(to(), 'a.binary', binary, { contentType: 'application/octet-stream' }),
      await publisher.send(to(), 'a.nothing'),
    ];

    expect(results.map(({ status, statusCode }) => `${status} ${statusCode}`)).toEqual(
      Array.from({ length: 6 }, () => 'delivered 204'),
    );
    expect(seen.map(({ event, method }) => `${method} ${event}`)).toEqual([
      'HEAD a.small',
      'POST a.large',
      'POST a.list',
      'POST a.csv',
      'POST a.binary',
      'HEAD a.nothing',
    ]);
    // Compared as strings: a matcher compares five million bytes one by one.
    const text = (data: unknown): string =>
      Buffer.isBuffer(data) ? data.toString('latin1') : (JSON.stringify(data) ?? 'nothing');
    expect(
      seen.map(({ data }) => text(data)).join() ===
        [{ id: 1 }, large, [1, 2], csv, binary, undefined].map(text).join(),
    ).toBe(true);
    expect(seen.map(({ id }) => id)).toEqual(results.map(({ id }) => id));
  });

  it('a failed attempt is retried with a new token for the same event', async () => {
    await startSender({ retry: { schedule: ['0s', 1], jitter: 0 } });
    const settled = new Promise<void>((resolve) => (onSeen = resolve));
    failures = 2;

    const first = await publisher.send(to(), 'a.b', { id: 1 }, { id: 'evt-1' });
    await settled;

    expect(first).toMatchObject({ id: 'evt-1', status: 'scheduled', failureReason: 'http_500' });
    expect(seen.map(({ id }) => id)).toEqual(['evt-1']);
    expect(seen[0]!.jti).not.toBe('evt-1');
  });

  it('an event is sent to every subscribed endpoint, and handled once', async () => {
    await startSender({
      endpoints: [
        { id: 'all', url: to(), events: ['**'] },
        { id: 'orders', url: `${to()}?second`, events: ['order.*'] },
        { id: 'others', url: to(), events: ['refund.*'] },
      ],
    });

    const result = await publisher.publish('order.created', { id: 1 }, { id: 'evt-2' });
    const again = await publisher.publish('order.created', { id: 1 }, { id: 'evt-2' });
    // Waits until the queue is drained.
    await sender?.app.close();
    sender = undefined;

    expect(result).toMatchObject({ id: 'evt-2', event: 'order.created' });
    expect(result.deliveries.map(({ endpointId }) => endpointId)).toEqual(['all', 'orders']);
    expect(again.deliveries).toEqual(result.deliveries);
    // Two deliveries of one event: the receiver recognises the second by its id.
    expect(seen).toHaveLength(1);
  });
});

describe('publishing', () => {
  const create = async (
    publisher?: WebhookPublisherOptions,
  ): Promise<[WebhookPublisher, InMemoryWebhookTransport]> => {
    const transport = new InMemoryWebhookTransport();
    // A module with neither receiver nor publisher does not start.
    const receiver = { issuers: [{ issuer: ISSUER, secret: SECRET }] };
    const testing = await Test.createTestingModule({
      imports: [WebhookModule.forRoot({ publisher, receiver })],
    })
      .overrideProvider(HttpService)
      .useValue(transport)
      .compile();
    return [testing.get(WebhookPublisher), transport];
  };

  it('is recorded by the in-memory transport, with decoded tokens', async () => {
    const [publisher, transport] = await create({ issuer: ISSUER, secret: SECRET });
    transport.respondWith(({ event }) => (event === 'a.gone' ? 410 : 204));

    const url = 'https://crm.example/hooks';
    expect(await publisher.send(url, 'a.b', { id: 1 })).toMatchObject({ status: 'delivered' });
    expect(await publisher.send(url, 'a.gone', [1])).toMatchObject({
      status: 'failed',
      statusCode: 410,
    });
    expect(transport.sent).toMatchObject([
      { method: 'HEAD', url, event: 'a.b', data: { id: 1 }, claims: { iss: ISSUER } },
      { method: 'POST', event: 'a.gone', data: [1] },
    ]);
    transport.clear();
    expect(transport.sent).toEqual([]);
  });

  it('without publisher options throws an error that names the missing option', async () => {
    const [publisher] = await create();
    for (const call of [
      () => publisher.publish('a.b'),
      () => publisher.publishAll([{ event: 'a.b' }]),
      () => publisher.send('https://x.example', 'a.b'),
      () => publisher.sign('https://x.example', 'a.b'),
    ]) {
      await expect(call()).rejects.toMatchObject({
        code: 'invalid_configuration',
        message: expect.stringMatching(
          /publisher: is not configured, so nothing is sent: .* import that one first/,
        ),
      });
    }
  });

  it('uses the HttpService of the configured HttpModule', async () => {
    const { app } = await startApp(adapters[0]![1](), {
      options: {
        publisher: publisherOptions(),
        httpModule: HttpModule.register({ headers: { 'x-from': 'given module' } }),
      },
      providers: [Everything],
    });
    await expect(app.get(WebhookPublisher).send('http://10.0.0.1/', 'a.b')).rejects.toMatchObject({
      code: 'destination_blocked',
    });
    await app.close();
  });

  it('requires an explicit queue in production', async () => {
    const before = process.env['NODE_ENV'];
    process.env['NODE_ENV'] = 'production';
    try {
      await expect(create({ issuer: ISSUER, secret: SECRET })).rejects.toThrow(
        /publisher\.queue:.*InProcessQueue/,
      );
      const [publisher] = await create({
        issuer: ISSUER,
        secret: SECRET,
        queue: new InProcessQueue(),
      });
      expect(publisher).toBeInstanceOf(WebhookPublisher);
    } finally {
      process.env['NODE_ENV'] = before;
    }
  });
});

describe('signWebhook', () => {
  it.each(adapters)('creates requests that a receiver on %s accepts', async (_, createAdapter) => {
    seen = [];
    failures = 0;
    const { app, origin } = await startApp(createAdapter(), { providers: [Everything] });
    const signing = { issuer: ISSUER, secret: SECRET };
    for (const [data, more] of [
      [{ id: 1 }, {}],
      [{ id: 2 }, { method: 'POST', id: 'evt' }],
      [[3], {}],
      [Buffer.from('4'), { contentType: 'text/plain' }],
      [undefined, {}],
    ] as const) {
      const { method, headers, body } = await signWebhook('a.b', data, { ...signing, ...more });
      const answer = await fetch(`${origin}/webhooks`, { method, headers, ...(body && { body }) });
      expect(answer.status).toBe(204);
    }
    await app.close();

    expect(seen.map(({ method, data }) => [method, data])).toEqual([
      ['HEAD', { id: 1 }],
      ['POST', { id: 2 }],
      ['POST', [3]],
      ['POST', Buffer.from('4')],
      ['HEAD', undefined],
    ]);
    expect(seen[1]!.id).toBe('evt');
  });
});
