import { afterEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, Post, type Type, UseGuards } from '@nestjs/common';
import { signWebhook, TestClock } from 'nestjs-webhook-token/testing';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookRoute,
  WebhookInbox,
  WebhookStoreError,
  type WebhookModuleOptions,
  type WebhookReceiverOptions,
  WebhookGuard,
} from 'nestjs-webhook-token';
import { customSender, staticToken } from 'nestjs-webhook-token/senders';
import { adapters } from '../fixtures/adapters.js';
import { forged } from '../fixtures/forged-token.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  SECRET,
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

@Injectable()
class Orders {
  failing = false;

  @OnWebhookEvent('order.created')
  on(): void {
    if (this.failing) throw new Error('no stock');
  }

  @OnWebhookEvent('report.ready')
  onReport(csv: Buffer): number {
    return csv.length;
  }

  @OnWebhookEvent('report.cyclic')
  onCyclic(data: Record<string, unknown>): void {
    data['self'] = data;
  }
}

class LostGuard extends WebhookGuard {
  protected override receiverName(): string {
    return 'removed';
  }
}

@Controller('own')
class Routes {
  @WebhookRoute('hook/:tenant')
  receive(): void {}

  @UseGuards(WebhookGuard)
  @Post('guarded')
  guarded(): void {}

  @UseGuards(LostGuard)
  @Post('lost')
  lost(): void {}
}

const OTHER_SECRET = 'a-secret-of-another-sender-000001';

describe.each(adapters)('the inbox on %s', (_, create) => {
  let receiver: StartedApp;
  let inbox: WebhookInbox;
  afterEach(() => receiver.app.close());

  async function start(
    options?: WebhookModuleOptions['inbox'],
    change: Partial<WebhookReceiverOptions> = {},
    clock?: TestClock,
  ): Promise<void> {
    receiver = await startApp(create(), {
      options: { ...receiverOptions(change), inbox: options, ...(clock && { clock }) },
      providers: [Orders],
      controllers: [Routes] as Type[],
      nest: { rawBody: true },
    });
    inbox = receiver.app.get(WebhookInbox);
  }

  it('records every request with its outcome, on every kind of route', async () => {
    await start();
    const { origin } = receiver;
    const message = signedBody('{"a":1}', { txn: 'evt_1' });
    await post(origin, message);
    await post(origin, message);
    await head(origin, signed({ event: 'order.unknown' }));
    receiver.app.get(Orders).failing = true;
    await head(origin, signed());
    await head(origin, signed(), { path: '/own/hook/acme' });
    await send(origin, { method: 'POST', path: '/own/guarded' });

    const { entries, next } = await inbox.list();
    expect(next).toBeUndefined();
    expect(
      entries.toReversed().map(({ outcome, status, code, path }) => [outcome, status, code, path]),
    ).toEqual([
      ['handled', 204, undefined, '/webhooks'],
      ['duplicate', 204, undefined, '/webhooks'],
      ['unhandled', 204, undefined, '/webhooks'],
      ['failed', 500, 'handler_failed', '/webhooks'],
      ['handled', expect.any(Number), undefined, '/own/hook/:tenant'],
      ['refused', 401, 'missing_token', '/own/guarded'],
    ]);
    expect(entries.at(-1)).toMatchObject({
      authenticated: true,
      receiver: 'default',
      method: 'POST',
      size: 7,
      event: 'order.created',
      eventId: 'evt_1',
      issuer: ISSUER,
      at: expect.any(Date),
    });
  });

  it('records why a request was refused, by whom as claimed, and an explanation', async () => {
    await start();
    const token = forged({ secret: OTHER_SECRET, claims: { txn: 'evt_2' } });
    await head(receiver.origin, token);

    const { entries } = await inbox.list({ kind: 'refused', code: 'bad_signature' });
    expect(entries).toMatchObject([
      {
        outcome: 'refused',
        status: 401,
        authenticated: false,
        event: 'order.created',
        eventId: 'evt_2',
        issuer: ISSUER,
      },
    ]);
    const entry = await inbox.get(entries[0]!.id);
    expect(entry?.explanation).toMatchObject({ verdict: 'refused', code: 'bad_signature' });
  });

  it('explains a request whose body does not match its token', async () => {
    await start();
    const options = { issuer: ISSUER, secret: SECRET, method: 'POST' } as const;
    const { headers } = await signWebhook('order.created', { id: 'o1' }, options);
    await send(receiver.origin, { method: 'POST', headers, body: '{"id":"o2"}' });

    const { entries } = await inbox.list({ code: 'hash_mismatch' });
    const entry = await inbox.get(entries[0]!.id);
    expect(entry?.explanation).toMatchObject({
      code: 'hash_mismatch',
      steps: expect.arrayContaining([
        expect.objectContaining({ step: 'signature', outcome: 'passed' }),
        expect.objectContaining({ step: 'body-digest', outcome: 'failed' }),
      ]),
    });
  });

  it('does not take a request without a receiver for an authenticated one', async () => {
    await start();
    const answer = await send(receiver.origin, { path: '/own/lost' });

    expect(answer.status).toBe(500);
    expect((await inbox.list()).entries).toMatchObject([
      { outcome: 'refused', authenticated: false },
    ]);
  });

  it('keeps no headers and no payload unless it is asked to', async () => {
    await start();
    const headers = { 'x-test': '1' };
    await post(receiver.origin, signedBody('{"card":"4111"}'), { headers });

    const { entries } = await inbox.list();
    const entry = await inbox.get(entries[0]!.id);
    expect(entry).toBeDefined();
    expect(entry).not.toHaveProperty('headers');
    expect(entry).not.toHaveProperty('payload');
  });

  it('keeps redacted headers and payload, and never a credential', async () => {
    await start({
      headers: true,
      payload: true,
      redact: ({ headers, payload }) => ({
        headers: headers?.filter(([name]) => !/^x-person/i.test(name)),
        payload: payload && {
          ...payload,
          bytes: Buffer.from(
            Buffer.from(payload.bytes)
              .toString()
              .replace(/\d{4,}/, '****'),
          ),
        },
      }),
    });
    const headers = {
      cookie: 'sid=1',
      'x-api-key': 'k',
      'x-goog-iap-jwt-assertion': 'k',
      'cf-access-jwt-assertion': 'k',
      'x-amzn-oidc-data': 'k',
      'x-my-session-id': 'k',
      'x-auth-request': 'k',
      'x-my-credential': 'k',
      'ocp-apim-subscription-key': 'k',
      'x-functions-key': 'k',
      'idempotency-key': '1',
      referer: ['https://shop.example/in?key=k#k', 'https://shop.example/on#k'],
      'x-original-url': '/in?code=k',
      'x-forwarded-uri': '/in?code=k',
      'x-envoy-original-path': '/in?code=k',
      'x-person': 'Ada',
      'x-test': '1',
    };
    await post(receiver.origin, signedBody('{"card":"4111"}'), { headers });
    const refused = forged({ secret: OTHER_SECRET });
    await head(receiver.origin, refused, { headers });

    for (const { id } of (await inbox.list()).entries) {
      const entry = await inbox.get(id);
      const names = entry?.headers?.map(([name]) => name.toLowerCase());
      expect(names).toContain('x-test');
      expect(names).not.toEqual(expect.arrayContaining(['authorization']));
      expect(JSON.stringify(entry)).not.toMatch(/sid=1|"Ada"|x-api-key|eyJ/i);
      expect(names).not.toEqual(
        expect.arrayContaining([
          expect.stringMatching(/assertion|oidc|session|auth|credential|(?<!idempotency-)key/),
        ]),
      );
      expect(entry?.headers).toContainEqual(['referer', 'https://shop.example/in']);
      expect(entry?.headers).toContainEqual(['referer', 'https://shop.example/on']);
      expect(entry?.headers).toContainEqual(['idempotency-key', '1']);
      for (const name of ['x-original-url', 'x-forwarded-uri', 'x-envoy-original-path']) {
        expect(entry?.headers).toContainEqual([name, '/in']);
      }
    }
    const { entries } = await inbox.list({ outcome: 'handled' });
    const { payload } = (await inbox.get(entries[0]!.id))!;
    expect(Buffer.from(payload!.bytes).toString()).toBe('{"card":"****"}');
  });

  it('never keeps the header that has the credential of a sender', async () => {
    const value = 'the-value-that-acme-sends';
    const header = 'x-acme';
    const sender = staticToken({ header, value, event: () => 'order.created' });
    await start({ headers: true }, { sender });
    const { origin } = receiver;
    const headers = { [header]: value, 'content-type': 'application/json', 'x-test': '1' };
    const statuses: number[] = [];
    for (const [method, path, body] of [
      ['POST', '/webhooks', '{"n":1}'],
      ['POST', '/own/guarded', '{"n":2}'],
      ['POST', '/webhooks', 'no JSON'],
      ['GET', '/webhooks', undefined],
    ] as const) {
      statuses.push((await send(origin, { method, path, headers, body })).status);
    }

    expect(statuses).toEqual([200, 201, 400, 405]);
    const { entries } = await inbox.list();
    expect(entries).toHaveLength(4);
    for (const { id } of entries) {
      const entry = await inbox.get(id);
      expect(entry?.headers).toContainEqual(['x-test', '1']);
      expect(JSON.stringify(entry)).not.toContain(value);
    }
  });

  it('never keeps a header that the function of a custom sender reads', async () => {
    const value = 'the-value-that-acme-sends';
    const sender = customSender({
      name: 'acme',
      verify: ({ headers }) => headers.get('x-acme-key') === value,
      event: () => 'order.created',
    });
    await start({ headers: true }, { sender });
    const headers = { 'x-acme-key': value, 'content-type': 'application/json', 'x-test': '1' };
    for (const [method, body] of [
      ['POST', '{"n":1}'],
      ['GET', undefined],
    ] as const) {
      await send(receiver.origin, { method, path: '/webhooks', headers, body });
    }
    const { entries } = await inbox.list();

    expect(entries).toHaveLength(2);
    for (const { id } of entries) {
      const entry = await inbox.get(id);
      expect(entry?.headers).toContainEqual(['x-test', '1']);
      expect(JSON.stringify(entry)).not.toContain(value);
    }
  });

  it('keeps a payload of the largest size, and none of a larger one', async () => {
    await start({ payload: true, maxPayloadBytes: 7 });
    const sent = ['{"a":1}', '{"a":10}'];
    for (const [n, body] of sent.entries())
      await post(receiver.origin, signedBody(body, { txn: `evt_${n}` }));

    const kept = [];
    for (const n of sent.keys()) {
      const { entries } = await inbox.list({ eventId: `evt_${n}` });
      const { payload } = (await inbox.get(entries[0]!.id))!;
      kept.push(payload && Buffer.from(payload.bytes).toString());
    }
    expect(kept).toEqual(['{"a":1}', undefined]);
  });

  it('keeps a payload that its handler read from a file', async () => {
    await start({ payload: true }, { spool: { above: 4 } });
    await post(receiver.origin, signedBody('a,b,c', { event: 'report.ready' }), {
      headers: { 'content-type': 'text/csv' },
    });

    const { entries } = await inbox.list();
    const { payload } = (await inbox.get(entries[0]!.id))!;
    expect(Buffer.from(payload!.bytes).toString()).toBe('a,b,c');
  });

  it('records an event whose data its handler changed into something that is not JSON', async () => {
    await start({ payload: true });
    await head(receiver.origin, signed({ event: 'report.cyclic', data: { a: 1 } }));

    const { entries } = await inbox.list();
    expect(entries).toMatchObject([{ outcome: 'handled', event: 'report.cyclic' }]);
    expect(await inbox.get(entries[0]!.id)).not.toHaveProperty('payload');
  });

  it('keeps neither headers nor payload if redact throws', async () => {
    await start({
      headers: true,
      payload: true,
      redact: () => {
        throw new Error('a bug');
      },
    });
    await head(receiver.origin, signed({ data: { card: '4111' } }));

    const { entries } = await inbox.list();
    expect(entries).toMatchObject([{ outcome: 'handled' }]);
    const entry = await inbox.get(entries[0]!.id);
    expect(entry).not.toHaveProperty('headers');
    expect(entry).not.toHaveProperty('payload');
  });

  it('follows a queued event to its outcome, and retries a dead letter', async () => {
    const clock = new TestClock(Date.now());
    const queue = new InProcessQueue({ clock });
    const retry = { attempts: 2, jitter: 0, schedule: ['0s', '5s'] };
    await start(undefined, { acknowledge: 'queued', queue, retry }, clock);
    const orders = receiver.app.get(Orders);
    orders.failing = true;
    await head(receiver.origin, signed());
    await clock.advance(5_000);
    const dead = (await inbox.list({ outcome: 'dead' })).entries;
    expect(dead).toMatchObject([{ status: 202, runs: 2, event: 'order.created' }]);

    orders.failing = false;
    const { id } = dead[0]!;
    expect(await inbox.retry(id)).toEqual([id]);
    await clock.advance(1_000);

    expect(await inbox.get(id)).toMatchObject({ outcome: 'handled', runs: 1 });
    expect((await inbox.deadLetters()).deadLetters).toEqual([]);
    expect(await inbox.retry(id)).toEqual([]);
  });

  it.each([
    ['handled', false],
    ['dead', true],
  ])(
    'shows a retried event as %s whose run ended before its queue answered',
    async (outcome, fails) => {
      const clock = new TestClock(Date.now());
      class LateAnswer extends InProcessQueue {
        override async redeliver(ids: readonly string[]) {
          const redelivered = await super.redeliver(ids);
          await clock.advance(1_000);
          return redelivered;
        }
      }
      const queue = new LateAnswer({ clock });
      await start(undefined, { acknowledge: 'queued', queue, retry: { attempts: 1 } }, clock);
      receiver.app.get(Orders).failing = true;
      await head(receiver.origin, signed());
      await clock.advance(1_000);
      receiver.app.get(Orders).failing = fails;
      const [dead] = (await inbox.list({ outcome: 'dead' })).entries;
      expect(await inbox.retry(dead!.id)).toEqual([dead!.id]);
      await clock.advance(1_000);

      expect(await inbox.get(dead!.id)).toMatchObject({ outcome, runs: 1 });
    },
  );

  it('shows a dead letter as dead again if its queue refuses the retry', async () => {
    const clock = new TestClock(Date.now());
    class FullQueue extends InProcessQueue {
      override async redeliver(): Promise<readonly string[]> {
        throw new WebhookStoreError('store_full', 'the queue is full');
      }
    }
    const queue = new FullQueue({ clock });
    await start(undefined, { acknowledge: 'queued', queue, retry: { attempts: 1 } }, clock);
    receiver.app.get(Orders).failing = true;
    await head(receiver.origin, signed());
    await clock.advance(1_000);
    const [dead] = (await inbox.list({ outcome: 'dead' })).entries;

    await expect(inbox.retry(dead!.id)).rejects.toMatchObject({ code: 'store_full' });
    expect(await inbox.get(dead!.id)).toMatchObject({ outcome: 'dead', runs: 1 });
  });

  it('shows a dead letter that its queue has deleted as dead, also once it is retried', async () => {
    const clock = new TestClock(Date.now());
    const queue = new InProcessQueue({ clock });
    await start(undefined, { acknowledge: 'queued', queue, retry: { attempts: 1 } }, clock);
    receiver.app.get(Orders).failing = true;
    await head(receiver.origin, signed());
    await clock.advance(1_000);
    await queue.erase({});
    const [dead] = (await inbox.list({ outcome: 'dead' })).entries;

    expect(await inbox.retry(dead!.id)).toEqual([]);
    expect(await inbox.get(dead!.id)).toMatchObject({ outcome: 'dead', runs: 1 });
  });

  it('pages through entries, newest first', async () => {
    await start();
    for (let i = 0; i < 5; i++) await head(receiver.origin, signed({ txn: `evt_${i}` }));

    const first = await inbox.list({}, { limit: 3 });
    const second = await inbox.list({}, { limit: 3, after: first.next });
    const ids = [...first.entries, ...second.entries].map(({ eventId }) => eventId);
    expect(ids).toEqual(['evt_4', 'evt_3', 'evt_2', 'evt_1', 'evt_0']);
    expect(second.next).toBeUndefined();
  });

  it.each([
    [{ outcome: 'lost' }],
    [{ event: undefined }],
    [{ evnt: 'order.created' }],
    [{ since: 'yesterday' }],
  ])('refuses the filter %o', async (filter) => {
    await start();

    await expect(inbox.list(filter as object)).rejects.toMatchObject({ code: 'invalid_option' });
  });

  it('erases every entry of an event, and no other', async () => {
    await start({ payload: true });
    const { origin } = receiver;
    const [erased, kept] = ['evt_1', 'evt_2'].map((txn) => signedBody('{"name":"Ada"}', { txn }));
    for (const message of [erased!, erased!, kept!]) await post(origin, message);

    expect(await inbox.erase({ issuer: ISSUER, eventId: 'evt_1' })).toBe(2);
    const { entries } = await inbox.list();
    expect(entries.map(({ eventId }) => eventId)).toEqual(['evt_2']);
    await expect(inbox.erase({})).rejects.toMatchObject({ code: 'invalid_option' });
    await expect(inbox.erase({ eventId: undefined })).rejects.toMatchObject({
      code: 'invalid_option',
    });
    expect(await inbox.counts()).toMatchObject({ accepted: 1 });
  });

  it('records nothing with inbox: false', async () => {
    await start(false);

    expect((await head(receiver.origin, signed())).status).toBe(204);
    await expect(inbox.list()).rejects.toThrow('inbox: is false');
    expect((await inbox.deadLetters()).deadLetters).toEqual([]);
  });
});
