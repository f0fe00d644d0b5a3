import { HttpService } from '@nestjs/axios';
import { Controller, Injectable } from '@nestjs/common';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Type } from 'class-transformer';
import { IsArray, IsInt, IsString, Min, ValidateNested } from 'class-validator';
import { z } from 'zod';
import { InMemoryWebhookTransport } from 'nestjs-webhook-token/testing';
import {
  defineEvents,
  InProcessQueue,
  OnWebhookEvent,
  WebhookData,
  WebhookDeliveries,
  WebhookEndpoints,
  type WebhookModuleOptions,
  WebhookPublisher,
  WebhookRoute,
  WebhookVerifier,
} from 'nestjs-webhook-token';
import { adapters, createExpress } from '../fixtures/adapters.js';
import { type Answer, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  SECRET,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

class Line {
  @IsString() sku!: string;
  @IsInt() @Min(1) count!: number;
}

class OrderShipped {
  @IsString() id!: string;
  @IsArray() @ValidateNested({ each: true }) @Type(() => Line) lines!: Line[];
}

const events = defineEvents({
  'order.created': {
    schema: z.object({ id: z.string(), total: z.number() }),
    description: 'A customer placed an order.',
    examples: [{ id: 'o-1', total: 12 }],
  },
  'order.shipped': { dto: OrderShipped },
  'order.linked': { schema: z.string().transform((url) => new URL(url)) },
  'order.archived': { description: 'Its data is not described.' },
});

@Injectable()
class Orders {
  readonly seen: unknown[] = [];

  @OnWebhookEvent('**')
  on(data: unknown): void {
    this.seen.push(data);
  }

  @OnWebhookEvent('order.created')
  onCreated(_data: { id: string }): void {}
}

@Controller('hooks')
class Hooks {
  readonly seen: unknown[] = [];

  @WebhookRoute('shop')
  receive(@WebhookData() data: unknown): void {
    this.seen.push(data);
  }
}

const transport = new InMemoryWebhookTransport();

class Http {}

function options(change: Partial<WebhookModuleOptions> = {}): WebhookModuleOptions {
  return {
    events,
    receiver: { path: 'webhooks', issuers: [{ issuer: ISSUER, secret: SECRET }] },
    publisher: {
      issuer: 'https://billing.example',
      secret: SECRET,
      allowedAddresses: ['192.0.2.0/24'],
      endpoints: [{ id: 'crm', url: 'https://192.0.2.1/hooks', events: ['order.*'] }],
    },
    ...change,
  };
}

async function start(
  createAdapter = createExpress,
  change: Partial<WebhookModuleOptions> = {},
): Promise<StartedApp> {
  return startApp(createAdapter(), {
    options: {
      ...options(change),
      httpModule: {
        module: Http,
        providers: [{ provide: HttpService, useValue: transport }],
        exports: [HttpService],
      },
    },
    providers: [Orders],
    controllers: [Hooks],
  });
}

let started: StartedApp;

afterEach(async () => started.app.close());

describe.each(adapters)('defined events on %s', (_, createAdapter) => {
  beforeEach(async () => {
    started = await start(createAdapter);
  });

  it.each(['/webhooks', '/hooks/shop'])(
    'refuse data that a schema does not accept: %s',
    async (path) => {
      const { token, body } = signedBody('{"id":7}', { id: 'evt-1' });
      const answer = await send(started.origin, { method: 'POST', path, token, body });

      expect(answer.status).toBe(422);
      expect(answer.headers['webhook-error']).toBe('invalid_payload');
      expect(answer.json).toMatchObject({
        errors: [expect.stringContaining('id: '), expect.stringContaining('total: ')],
      });
      expect(started.logger.lines.join('\n')).toContain('id invalid_type, total invalid_type');
      expect(started.app.get(Orders).seen).toEqual([]);
      expect(started.app.get(Hooks).seen).toEqual([]);

      const corrected = signedBody('{"id":"o-1","total":1}', { id: 'evt-2' });
      const again = await send(started.origin, { method: 'POST', path, ...corrected });
      expect(again.status).toBe(204);
    },
  );

  it('refuse data that fails the constraints of a DTO, and leave valid data as it arrived', async () => {
    const ship = async (data: unknown, id: string): Promise<Answer> => {
      const request = signedBody(JSON.stringify(data), { event: 'order.shipped', id });
      return send(started.origin, { method: 'POST', path: '/webhooks', ...request });
    };
    const wrong = await ship({ id: 'o-1', lines: [{ sku: 'a', count: 0 }] }, 'evt-1');
    const valid = { id: 'o-1', lines: [{ sku: 'a', count: 2 }], added: 'later' };

    expect(wrong.status).toBe(422);
    expect(wrong.json).toMatchObject({
      errors: ['lines.0.count must not be less than 1'],
    });
    expect((await ship([], 'evt-2')).status).toBe(422);
    expect((await ship(valid, 'evt-3')).status).toBe(204);
    expect(started.app.get(Orders).seen).toEqual([valid]);
  });

  it('are not logged as unvalidated', () => {
    const notes = started.logger.lines.filter((line) => line.includes('data not validated'));

    expect(notes).toEqual([expect.stringContaining('Mapped {**}')]);
  });

  it('accept an event that is not defined, and data that is not described', async () => {
    for (const event of ['payment.made', 'order.archived']) {
      const token = signed({ event, data: { any: 'thing' } });
      expect(
        (await send(started.origin, { method: 'HEAD', path: '/webhooks', token })).status,
      ).toBe(204);
    }
  });
});

describe('a publisher of defined events', () => {
  const recorded = async (): Promise<number> =>
    (await started.app.get(WebhookDeliveries).list()).deliveries.length;

  beforeEach(async () => {
    transport.clear();
    started = await start(createExpress, {
      publisher: { ...options().publisher!, queue: new InProcessQueue() },
    });
  });

  it('rejects wrong data with nothing recorded', async () => {
    const publisher = started.app.get(WebhookPublisher);
    const wrong = { id: 'o-1', total: 'secret' };

    for (const call of [
      publisher.publish('order.created', wrong),
      publisher.send('crm', 'order.created', wrong),
      publisher.sign('crm', 'order.created', wrong),
      publisher.publish('order.created', { id: 'o-1', total: { toJSON: () => 'secret' } }),
    ]) {
      await expect(call).rejects.toMatchObject({
        code: 'invalid_data',
        message:
          'The data is not valid data of "order.created": total invalid_type. Correct the data, or the definition.',
      });
    }
    await expect(
      publisher.publish('order.shipped', { id: 'o-1', lines: [{}] }),
    ).rejects.toMatchObject({
      message: expect.stringContaining('lines.0.sku isString, lines.0.count min'),
    });
    expect(await recorded()).toBe(0);
  });

  it('checks bytes of JSON as the JSON that their receiver gets', async () => {
    const publisher = started.app.get(WebhookPublisher);
    const send = async (json: string): Promise<unknown> =>
      publisher.send('crm', 'order.created', Buffer.from(json), {
        contentType: 'application/json',
      });

    expect(await send('{"id":"o-1","total":1}')).toMatchObject({ status: 'delivered' });
    await expect(send('{"id":"o-1"}')).rejects.toMatchObject({
      code: 'invalid_data',
      message: expect.stringContaining('total invalid_type'),
    });
  });

  it('rejects data for which a schema throws, and names the event', async () => {
    const publisher = started.app.get(WebhookPublisher);
    const thrown = {
      code: 'invalid_data',
      message: expect.not.stringContaining('no url'),
      cause: expect.objectContaining({ code: 'ERR_INVALID_URL' }),
    };
    const message =
      'The definition of "order.linked" throws, see the cause; report invalid data as an issue instead.';

    await expect(publisher.publish('order.linked', 'no url')).rejects.toMatchObject({
      ...thrown,
      message,
    });
    await expect(
      publisher.publishAll([
        { event: 'order.archived' },
        { event: 'order.linked', data: 'no url' },
      ]),
    ).rejects.toMatchObject({
      ...thrown,
      message: `publishAll: events[1] ("order.linked"): ${message}`,
    });
    expect(await recorded()).toBe(0);
  });

  it('rejects an event that is not defined, and suggests the one that was meant', async () => {
    const publisher = started.app.get(WebhookPublisher);

    await expect(publisher.publish('order.craeted', {})).rejects.toMatchObject({
      code: 'unknown_event',
      message: '"order.craeted" is not a defined event; did you mean "order.created"?',
    });
    await expect(publisher.publish('x.y', {})).rejects.toMatchObject({
      message: expect.stringContaining(
        'use one of order.created, order.shipped, order.linked, order.archived, or add it to defineEvents',
      ),
    });
    expect(await recorded()).toBe(0);
  });

  it('delivers valid data', async () => {
    const publisher = started.app.get(WebhookPublisher);

    const result = await publisher.send('crm', 'order.created', { id: 'o-1', total: 1 });

    expect(result.status).toBe('delivered');
  });

  it('refuses an endpoint whose subscription matches no defined event', async () => {
    const endpoints = started.app.get(WebhookEndpoints);
    const url = 'https://192.0.2.7/hooks';

    await expect(
      endpoints.create({ url, events: ['order.*', 'ordr.*', 'order.craeted'] }),
    ).rejects.toMatchObject({
      code: 'invalid_option',
      problems: [
        {
          path: 'events[1]',
          message: '"ordr.*" matches no defined event; did you mean "order.*"?',
        },
        { path: 'events[2]', message: expect.stringContaining('did you mean "order.created"?') },
      ],
    });
    const { endpoint } = await endpoints.create({ url, events: ['order.*'] });
    await expect(endpoints.update(endpoint.id, { events: ['refund.*'] })).rejects.toMatchObject({
      code: 'invalid_option',
    });
  });

  it('tests an endpoint with an example', async () => {
    const endpoints = started.app.get(WebhookEndpoints);

    expect(await endpoints.test('crm', { event: 'order.created' })).toMatchObject({
      delivered: true,
    });
    expect(transport.single({ event: 'order.created' }).data).toEqual({ id: 'o-1', total: 12 });
    await expect(endpoints.test('crm', { event: 'order.shipped' })).rejects.toMatchObject({
      code: 'unknown_event',
      message: expect.stringContaining('has no example'),
    });
    await expect(
      endpoints.test('crm', { event: 'order.created', tenant: 'other' }),
    ).rejects.toMatchObject({ code: 'unknown_endpoint' });
  });

  it('explains which check of a definition refuses a request', async () => {
    const verifier = started.app.get(WebhookVerifier);
    const stepOf = async (event: string, data: object): Promise<object> => {
      const headers = { authorization: `Bearer ${signed({ event, data })}` };
      const request = { method: 'HEAD', headers };
      const { verdict, code, status, steps } = await verifier.explain(request);
      const { outcome, detail } = steps.find(({ step }) => step === 'definition')!;
      return { verdict, code, status, outcome, detail };
    };
    const refused = { verdict: 'refused', code: 'invalid_payload', status: 422, outcome: 'failed' };

    expect(await stepOf('order.created', { id: 'o1', total: 'CUSTOMER-4711' })).toEqual({
      ...refused,
      detail: 'the data is not valid data of order.created: total invalid_type',
    });
    expect(await stepOf('order.shipped', { id: 'o1', lines: [{ sku: 'a', count: 0 }] })).toEqual({
      ...refused,
      detail: 'the data is not valid data of order.shipped: lines.0.count min',
    });
    expect(await stepOf('order.created', { id: 'o1', total: 3 })).toMatchObject({
      verdict: 'accepted',
      outcome: 'passed',
    });
    expect(await stepOf('order.archived', { any: 1 })).toMatchObject({
      verdict: 'accepted',
      outcome: 'skipped',
    });
  });

  it('checks a request that arrived another way', async () => {
    const { token, body } = signedBody('{"id":7}');
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };

    await expect(
      started.app.get(WebhookVerifier).verify({ method: 'POST', headers, body }),
    ).rejects.toMatchObject({
      code: 'invalid_payload',
      message: 'the data is not valid data of order.created: id invalid_type, total invalid_type',
    });
  });
});
