import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
import type { WebhookEvent } from '../../lib/receiver/webhook-event.js';
import { adapters } from '../fixtures/adapters.js';
import { head, post } from '../fixtures/http-client.js';
import { signed, signedBody, startApp, type StartedApp } from '../fixtures/receiver-app.js';

@Injectable()
class Handlers {
  readonly handled: string[] = [];

  @OnWebhookEvent('order.created')
  created(_data: unknown, event: WebhookEvent): void {
    this.handled.push(event.id);
  }
}

const DATA = { number: 7, lines: [{ sku: 'a', count: 1 }], customer: { name: 'Ada', vip: true } };

describe.each(adapters)('an event that is sent again with the same id, on %s', (_, create) => {
  let started: StartedApp;
  let txn: string;

  beforeAll(async () => {
    started = await startApp(create(), { providers: [Handlers] });
  });
  afterAll(() => started.app.close());

  beforeEach(async () => {
    txn = crypto.randomUUID();
    expect((await head(started.origin, signed({ txn, data: DATA }))).status).toBe(204);
  });

  it.each([
    [
      'byte for byte the same',
      '{"number":7,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada","vip":true}}',
    ],
    [
      'with its members in another order',
      '{"customer":{"vip":true,"name":"Ada"},"lines":[{"count":1,"sku":"a"}],"number":7}',
    ],
    [
      'with other white space and escapes',
      '{\n  "number": 7.0,\n  "lines": [ { "sku": "\\u0061", "count": 1 } ],\n  "customer": { "name": "Ada", "vip": true }\n}\n',
    ],
  ])('is a duplicate if its body is %s', async (_how, body) => {
    const answer = await post(started.origin, signedBody(body, { txn }));

    expect(answer.status).toBe(204);
    expect(answer.headers['webhook-duplicate']).toBe('true');
    expect(timesHandled(started, txn)).toBe(1);
  });

  it.each([
    [
      'another value',
      '{"number":8,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada","vip":true}}',
    ],
    [
      'an additional member',
      '{"number":7,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada","vip":true},"x":1}',
    ],
    [
      'a member in another place',
      '{"number":7,"lines":[{"sku":"a","count":1}],"customer":{"name":"Ada"},"vip":true}',
    ],
  ])('is rejected as replayed if its body has %s', async (_how, body) => {
    const answer = await post(started.origin, signedBody(body, { txn }));

    expect(answer.status).toBe(401);
    expect(answer.json).toMatchObject({ code: 'replayed' });
    expect(timesHandled(started, txn)).toBe(1);
  });
});

function timesHandled({ app }: StartedApp, id: string): number {
  return app.get(Handlers).handled.filter((handled) => handled === id).length;
}
