import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { inspect } from 'node:util';
import { InProcessQueue, WebhookConfigurationError, WebhookInbox } from '../../lib/index.js';
import { auth0, gitlab, okta, securityEvents, staticToken } from '../../lib/senders/index.js';
import { deliverWebhook, flushDeliveries } from '../../lib/testing/index.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { sendTruncated } from '../fixtures/raw-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { verifierFor } from '../fixtures/verifier-for.js';

const OLD = 'the-old-value-of-the-header';
const NEW = 'the-new-value-of-the-header';

const acme = (value: string | readonly string[]) =>
  staticToken({
    name: 'acme',
    header: 'x-acme-token',
    value,
    event: ({ data }) => (data as { type: string }).type,
    id: ({ data }) => (data as { id: string }).id,
  });

describe.each(adapters)('a receiver of a sender with a static value on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let handlers: ReceivedEvents;
  beforeAll(async () => {
    receiver = await startApp(createAdapter(), {
      options: {
        receiver: [
          { name: 'acme', path: 'acme', sender: acme([OLD, NEW]), maxBodyBytes: 10_000 },
          { name: 'okta', path: 'okta', sender: okta({ value: OLD }) },
          { name: 'auth0', path: 'auth0', sender: auth0({ value: OLD }) },
          {
            name: 'auth0-queued',
            path: 'auth0-queued',
            sender: auth0({ value: OLD }),
            acknowledge: 'queued',
            queue: new InProcessQueue(),
          },
          { name: 'gitlab', path: 'gitlab', sender: gitlab({ value: OLD }) },
          {
            name: 'queued',
            path: 'queued',
            sender: okta({ value: OLD }),
            acknowledge: 'queued',
            queue: new InProcessQueue(),
          },
        ],
      },
      providers: [ReceivedEvents],
    });
    handlers = receiver.app.get(ReceivedEvents);
  });
  beforeEach(() => {
    handlers.clear();
  });
  afterAll(() => receiver.app.close());

  const post = (
    path: string,
    headers: Record<string, string | string[]>,
    body: unknown,
  ): Promise<Answer> =>
    send(receiver.origin, {
      path,
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const toOkta = (path: string, ...uuids: string[]): Promise<Answer> =>
    post(
      path,
      { authorization: OLD },
      {
        data: { events: uuids.map((uuid) => ({ uuid, eventType: 'user.lifecycle.create' })) },
      },
    );

  it.each([OLD, NEW])(
    'accepts each of its values, and says that nothing is signed',
    async (value) => {
      const id = `a-${value}`;
      const { status } = await post('/acme', { 'x-acme-token': value }, { type: 'a.made', id });

      expect(status).toBe(200);
      expect(handlers.seen[0]).toMatchObject({ event: 'a.made', id, issuer: 'acme' });
      expect(handlers.seen[0]).toMatchObject({ profile: 'acme', bodyVerified: false });
    },
  );

  it.each<[string, Record<string, string | string[]>, string]>([
    ['no value', {}, 'missing_signature'],
    ['an empty value', { 'x-acme-token': '' }, 'missing_signature'],
    ['another value', { 'x-acme-token': `${OLD}x` }, 'invalid_signature'],
    ['a part of the value', { 'x-acme-token': OLD.slice(0, -1) }, 'invalid_signature'],
    ['another case', { 'x-acme-token': OLD.toUpperCase() }, 'invalid_signature'],
    ['a prefix', { 'x-acme-token': `Bearer ${OLD}` }, 'invalid_signature'],
    ['the value twice', { 'x-acme-token': [OLD, OLD] }, 'malformed_signature'],
    ['a value that is not ASCII', { 'x-acme-token': `${OLD}é` }, 'malformed_signature'],
  ])('rejects %s before it reads the body', async (_case, headers, code) => {
    // A body that is too large would be rejected with 413 if it were read.
    const answer = await post('/acme', headers, 'x'.repeat(20_000));

    expect([answer.status, answer.headers['webhook-error']]).toEqual([401, code]);
    expect(handlers.seen).toEqual([]);
  });

  it('rejects a body that ends too early, and other content encodings', async () => {
    const body = JSON.stringify({ type: 'a.made', id: 'early' });
    await sendTruncated(receiver.port, '/acme', { headers: { 'x-acme-token': OLD }, body });
    const headers = { 'x-acme-token': OLD, 'content-encoding': 'gzip' };
    const { status } = await send(receiver.origin, { path: '/acme', headers, body });

    expect(status).toBe(415);
    expect(handlers.seen).toEqual([]);
  });

  it('acknowledges a replay without handling it again', async () => {
    const request = ['/acme', { 'x-acme-token': OLD }, { type: 'a.made', id: 'once' }] as const;
    const answers = [await post(...request), await post(...request)];

    expect(answers.map(({ headers }) => headers['webhook-duplicate'])).toEqual([undefined, 'true']);
    expect(handlers.ids).toEqual(['once']);
  });

  describe('several events in one request', () => {
    it('handles and records each by itself', async () => {
      const answer = await toOkta('/okta', 'u1', 'u2', 'u3');

      expect(answer.status).toBe(200);
      expect(handlers.ids).toEqual(['u1', 'u2', 'u3']);
      expect(handlers.seen[1]).toMatchObject({
        event: 'user.lifecycle.create',
        data: { uuid: 'u2' },
        contentType: 'application/json',
      });
      expect(JSON.parse(String(await handlers.seen[1]!.rawBody()))).toMatchObject({ uuid: 'u2' });
    });

    it('asks for the request again if one fails, and does not handle the others again', async () => {
      handlers.fail('f2');
      const failed = await toOkta('/okta', 'f1', 'f2', 'f3');
      handlers.failures.clear();
      const repeated = await toOkta('/okta', 'f1', 'f2', 'f3');

      expect([failed.status, repeated.status]).toEqual([500, 200]);
      expect(repeated.headers['webhook-duplicate']).toBeUndefined();
      expect(handlers.ids).toEqual(['f1', 'f2', 'f3', 'f2']);
    });

    it('recognises events in another request, and copies in the same one', async () => {
      await toOkta('/okta', 'd1', 'd1', 'd2');
      const mixed = await toOkta('/okta', 'd2', 'd3');
      const copy = await toOkta('/okta', 'd3', 'd1');

      expect([mixed.status, copy.status]).toEqual([200, 200]);
      expect(mixed.headers['webhook-duplicate']).toBeUndefined();
      expect(copy.headers['webhook-duplicate']).toBe('true');
      expect(handlers.ids).toEqual(['d1', 'd2', 'd3']);
    });

    it('acknowledges an empty list', async () => {
      expect((await toOkta('/okta')).status).toBe(200);
      expect(handlers.seen).toEqual([]);
    });

    it('rejects an item that is no event, and handles the others', async () => {
      const list = [{ uuid: 'n1', eventType: 'user.created' }, null, { uuid: 'n2' }];
      const data = { events: [...list, { uuid: 'n3', eventType: 'user.created' }] };
      const { status, headers } = await post('/okta', { authorization: OLD }, { data });
      const { entries } = await receiver.app.get(WebhookInbox).list({ receiver: 'okta' });
      const line = /Refused with 400 invalid_payload: .*names no event.*receiver "okta"/;

      expect([status, headers['webhook-error']]).toEqual([400, 'invalid_payload']);
      expect(handlers.ids).toEqual(['n1', 'n3']);
      expect(entries.slice(0, 4).map(({ outcome, code }) => code ?? outcome)).toEqual([
        'handled',
        'invalid_payload',
        'invalid_payload',
        'handled',
      ]);
      expect(receiver.logger.at('warn')).toContainEqual(expect.stringMatching(line));
    });

    it('asks for the request again if one fails beside an item that is no event', async () => {
      handlers.fail('m2');
      const events = [{ uuid: 'm1' }, { uuid: 'm2', eventType: 'user.created' }];
      const { status } = await post('/okta', { authorization: OLD }, { data: { events } });

      expect(status).toBe(500);
    });

    it('rejects an item whose id cannot be read, and handles the others', async () => {
      const sender = staticToken({
        header: 'x-acme-token',
        value: OLD,
        event: () => 'a.made',
        id: ({ data }) => (data as { id: string }).id,
        events: ({ data }) => data as unknown[],
      });
      const other = await startApp(createAdapter(), {
        options: { receiver: { path: 'in', sender } },
        providers: [ReceivedEvents],
      });
      const { status } = await send(other.origin, {
        path: '/in',
        headers: { 'x-acme-token': OLD },
        body: JSON.stringify([null, { id: 'r1' }]),
      });
      const { ids } = other.app.get(ReceivedEvents);
      await other.app.close();

      expect([status, ids]).toEqual([400, ['r1']]);
    });

    it('rejects an item that is no event where only one event can be handled', async () => {
      const verifier = verifierFor({ sender: okta({ value: OLD }) }, new TestClock());
      const verify = async (...events: unknown[]): Promise<unknown> =>
        verifier.verify({
          method: 'POST',
          headers: { authorization: OLD },
          body: JSON.stringify({ data: { events } }),
        });
      const code = (name: string): unknown => expect.objectContaining({ code: name });

      await expect(verify({ uuid: 'v1' })).rejects.toEqual(code('invalid_payload'));
      await expect(verify({ uuid: 'v1' }, {})).rejects.toEqual(code('batch_unsupported'));
    });

    it('shows each in the inbox', async () => {
      handlers.fail('i2');
      await toOkta('/okta', 'i1', 'i2');
      const { entries } = await receiver.app.get(WebhookInbox).list();
      const found = entries.filter(({ eventId }) => ['i1', 'i2'].includes(eventId ?? ''));

      expect(found.map(({ eventId, outcome }) => `${eventId} ${outcome}`).sort()).toEqual([
        'i1 handled',
        'i2 failed',
      ]);
    });

    it('queues each by itself', async () => {
      const answer = await toOkta('/queued', 'q1', 'q2');
      await flushDeliveries(receiver.app);

      expect(answer.status).toBe(200);
      expect(handlers.seen.map(({ data }) => (data as { uuid: string }).uuid).sort()).toEqual([
        'q1',
        'q2',
      ]);
    });

    it('takes a list or a single log of Auth0', async () => {
      const log = (log_id: string) => ({ log_id, data: { type: 'fp', user_id: 'auth0|1' } });
      const headers = { authorization: OLD };
      const answers = [
        await post('/auth0', headers, [log('l1'), log('l2')]),
        await post('/auth0', headers, log('l3')),
      ];

      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
      expect(handlers.ids).toEqual(['l1', 'l2', 'l3']);
      expect(handlers.seen[0]!.event).toBe('fp');
    });

    it.each([
      ['application/json', '\n'],
      ['application/x-ndjson', '\r\n'],
    ])('reads JSON lines of Auth0 as %s', async (type, end) => {
      const line = (n: number): string =>
        JSON.stringify({ log_id: `${type}${n}`, data: { type: 's', text: 'é, {}' } });
      const body = `${line(1)}${end}${line(2)}${end}${end}${line(3)}${end}`;
      const headers = { authorization: OLD, 'content-type': type };
      const { status } = await send(receiver.origin, { path: '/auth0', headers, body });

      expect(status).toBe(200);
      expect(handlers.ids).toEqual([1, 2, 3].map((n) => `${type}${n}`));
      expect(handlers.seen[2]!.data).toMatchObject({ data: { text: 'é, {}' } });
    });

    it('restores a single JSON line of Auth0 from a queue', async () => {
      const log = { log_id: 'l7', data: { type: 's' } };
      const headers = { authorization: OLD, 'content-type': 'application/x-ndjson' };
      const body = `${JSON.stringify(log)}\n`;
      const { status } = await send(receiver.origin, { path: '/auth0-queued', headers, body });
      while (handlers.seen.length === 0) await new Promise((resolve) => setImmediate(resolve));

      expect(status).toBe(200);
      expect(handlers.seen[0]!.data).toEqual(log);
    });

    it.each([
      ['a cut line', '{"log_id":"x1","data":{"type":"s"}}\n{"log_id":"x2"'],
      ['lines that are no objects', '1\n2'],
      ['no line', '\n'],
    ])('rejects %s of Auth0 as a whole', async (_case, body) => {
      const headers = { authorization: OLD, 'content-type': 'application/json' };
      const answer = await send(receiver.origin, { path: '/auth0', headers, body });

      expect([answer.status, answer.headers['webhook-error']]).toEqual([400, 'invalid_payload']);
      expect(handlers.seen).toEqual([]);
    });

    it('reads an indented object of Auth0', async () => {
      const body = JSON.stringify({ log_id: 'l9', data: { type: 's' } }, undefined, 2);
      const headers = { authorization: OLD, 'content-type': 'application/json' };
      const answer = await send(receiver.origin, { path: '/auth0', headers, body });

      expect([answer.status, handlers.ids]).toEqual([200, ['l9']]);
    });
  });

  it.each(['/okta', '/queued'])(
    'answers the verification of Okta at %s, and no more',
    async (path) => {
      const challenge = { 'x-okta-verification-challenge': 'Zh9-a_1' };
      const answer = await send(receiver.origin, { method: 'GET', path, headers: challenge });
      const long = await send(receiver.origin, {
        method: 'GET',
        path,
        headers: { 'x-okta-verification-challenge': 'x'.repeat(5_000) },
      });
      const without = await send(receiver.origin, { method: 'GET', path });

      expect(answer).toMatchObject({ status: 200, json: { verification: 'Zh9-a_1' } });
      expect(answer.headers).toMatchObject({
        'content-type': 'application/json',
        'cache-control': 'no-store',
      });
      expect((long.json as { verification: string }).verification).toHaveLength(1_024);
      expect([without.status, without.headers['allow']]).toEqual([405, 'POST']);
      expect(handlers.seen).toEqual([]);
    },
  );

  it('answers no GET at the path of a sender that has no such challenge', async () => {
    const headers = { 'x-okta-verification-challenge': 'x' };

    expect((await send(receiver.origin, { method: 'GET', path: '/auth0', headers })).status).toBe(
      405,
    );
  });

  it.each([
    ['push', { object_kind: 'push', checkout_sha: 'a' }],
    ['merge_request.open', { object_kind: 'merge_request', object_attributes: { action: 'open' } }],
    ['project_create', { event_name: 'project_create' }],
  ])('names the event of GitLab %s', async (event, body) => {
    await post('/gitlab', { 'x-gitlab-token': OLD }, body);

    expect(handlers.seen[0]).toMatchObject({ event, data: body });
  });

  it('recognises an event of GitLab by its idempotency key', async () => {
    const flag = (active: boolean, key: string): Promise<Answer> =>
      post(
        '/gitlab',
        { 'x-gitlab-token': OLD, 'idempotency-key': key },
        { object_kind: 'feature_flag', object_attributes: { id: 6, active } },
      );
    await flag(true, 'k-1');
    await flag(false, 'k-2');
    await flag(true, 'k-3');
    const retry = await flag(true, 'k-3');

    expect(retry.headers['webhook-duplicate']).toBe('true');
    expect(handlers.ids).toEqual(['k-1', 'k-2', 'k-3']);
  });

  it('recognises an event of GitLab without an idempotency key by its body', async () => {
    const body = { object_kind: 'push', checkout_sha: 'without-a-key' };
    await post('/gitlab', { 'x-gitlab-token': OLD }, body);
    const copy = await post('/gitlab', { 'x-gitlab-token': OLD }, body);

    expect(copy.headers['webhook-duplicate']).toBe('true');
    expect(handlers.ids).toEqual([expect.stringMatching(/^sha256:/)]);
  });

  it.each([
    ['acme', acme(OLD), 'a.made', { type: 'a.made', id: 'test' }],
    ['okta', okta({ value: OLD }), 'user.session.start', { severity: 'INFO' }],
    ['auth0', auth0({ value: OLD }), 's', { data: { user_id: '1' } }],
    ['gitlab', gitlab({ value: OLD }), 'issue.close', { user: { id: 1 } }],
  ])('delivers test events to %s', async (name, sender, event, data) => {
    const answer = await deliverWebhook(receiver.app, event, data as never, {
      receiver: name,
      sender,
    });

    expect(answer).toMatchObject({ status: 200, outcome: 'handled' });
    expect(handlers.seen[0]!.data).toMatchObject(data);
  });
});

type Create = (options: { value: string | readonly string[] }) => unknown;

const CREATE: readonly [name: string, create: Create][] = [
  ['okta', okta],
  ['auth0', auth0],
  ['gitlab', gitlab],
  ['staticToken', ({ value }) => acme(value)],
];

const stream: Create = ({ value }) =>
  securityEvents({
    issuer: 'https://idp.example',
    audience: 'https://shop.example',
    secret: `${OLD}-and-more`,
    authorization: value,
  });

it.each([...CREATE, ['securityEvents', stream] as const])(
  '%s refuses a value that no header can have',
  (_, create) => {
    for (const wrong of [`${OLD}\n`, ` ${OLD}`, 'pässwort', 'a\tb', [OLD, 'a\r\nb']]) {
      expect(() => create({ value: wrong })).toThrow(
        /must be visible ASCII without white space at either end.*trim the environment variable/,
      );
    }
    expect(() => create({ value: ['x', `Bearer ${OLD}`] })).not.toThrow();
  },
);

it.each(CREATE)('%s refuses an empty value, and prints none', (_, create) => {
  for (const wrong of ['', [], [OLD, ''], undefined as never]) {
    expect(() => create({ value: wrong })).toThrow(WebhookConfigurationError);
  }
  const sender = create({ value: OLD });

  expect(`${inspect(sender, { depth: 9 })}${JSON.stringify(sender)}`).not.toContain(OLD);
});
