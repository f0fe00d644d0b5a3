import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { digest, type WebhookProfile } from 'nestjs-webhook-token/token';
import { signWebhook } from 'nestjs-webhook-token/testing';
import { OnWebhookEvent, type WebhookEvent, WebhookVerifier } from 'nestjs-webhook-token';
import { createFastify } from '../fixtures/adapters.js';
import { forged } from '../fixtures/forged-token.js';
import { GoSender, type GoRequest } from '../fixtures/go-reference.js';
import { head, post, send, type Answer } from '../fixtures/http-client.js';
import { RawConnection } from '../fixtures/raw-client.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

@Injectable()
class Handlers {
  readonly events: WebhookEvent[] = [];

  @OnWebhookEvent(['order.*', 'ping'])
  on(_data: unknown, event: WebhookEvent): void {
    this.events.push(event);
  }
}

const go = new GoSender(ISSUER, SECRET);
const json = Buffer.from('{"id":7,"note":"ünï <&>"}');
const large = Buffer.from(JSON.stringify({ id: 7, text: 'ü'.repeat(9_000) }));
const binary = Buffer.from([0, 255, 254, 1]);
const hash = digest('sha256', json);
const reference = { hash: digest('sha3-256', json).slice(9), size: json.length };

describe('a receiver', () => {
  const started = new Map<string, { app: StartedApp; handlers: Handlers }>();

  beforeAll(async () => {
    const enabled: [string, WebhookProfile[]][] = [
      ['spec', ['webhook-token']],
      ['old', ['swt-draft-00']],
      ['new', ['swt-draft-02']],
      ['all', ['webhook-token', 'swt-draft-00', 'swt-draft-02']],
    ];
    for (const [name, profiles] of enabled) {
      const app = await startApp(createFastify(), {
        options: receiverOptions({ profiles }),
        providers: [Handlers],
      });
      started.set(name, { app, handlers: app.app.get(Handlers) });
    }
  });
  afterAll(() => Promise.all([...started.values()].map(({ app }) => app.app.close())));
  beforeEach(() => {
    for (const { handlers } of started.values()) handlers.events.length = 0;
  });

  const at = (name: string): string => started.get(name)!.app.origin;
  const portOf = (name: string): number => started.get(name)!.app.port;
  const eventAt = (name: string): WebhookEvent | undefined => started.get(name)!.handlers.events[0];
  const sendGo = (name: string, { method, headers, body }: GoRequest): Promise<Answer> =>
    send(at(name), { method, headers, ...(body && { body }) });
  const code = ({ status, headers }: Answer): string => `${status} ${headers['webhook-error']}`;

  describe.each(['old', 'all'])('requests of the Go reference (receiver %s)', (name) => {
    it.each<[string, () => GoRequest, unknown]>([
      [
        'a small object in base64',
        () => go.build('order.created', json),
        JSON.parse(json.toString()),
      ],
      ['no data, sent as null', () => go.build('order.created', null), undefined],
      [
        'a large object as a body',
        () => go.build('order.created', large),
        JSON.parse(large.toString()),
      ],
      [
        'a body with SHA-512',
        () => go.buildPost('order.created', json, 'SHA-512'),
        JSON.parse(json.toString()),
      ],
      [
        'a body with a lower-case algorithm name',
        () => go.buildPost('order.created', json, 'sha3-384'),
        JSON.parse(json.toString()),
      ],
      ['a body that is not JSON', () => go.buildPost('order.created', binary), binary],
      ['an empty body', () => go.buildPost('order.created', Buffer.alloc(0)), undefined],
    ])('accepts %s', async (_what, request, data) => {
      const sent = request();

      expect((await sendGo(name, sent)).status).toBe(204);
      const event = eventAt(name)!;
      expect(event).toMatchObject({
        event: 'order.created',
        issuer: ISSUER,
        profile: 'swt-draft-00',
        method: sent.method,
        bodyVerified: true,
        attempt: undefined,
      });
      expect(event.data).toEqual(data);
      expect(await event.rawBody()).toEqual(sent.body ?? Buffer.alloc(0));
    });

    it.each([
      ['a list', [7]],
      ['a string', 'seven'],
      ['null', null],
      ['an object that looks like a reference to a body', reference],
    ])('accepts %s by HEAD, in base64', async (_what, data) => {
      const base64 = Buffer.from(JSON.stringify(data)).toString('base64');

      expect((await head(at(name), go.sign('order.created', base64))).status).toBe(204);
      expect(eventAt(name)!.data).toEqual(data);
    });

    it('accepts an event name with a single segment', async () => {
      expect((await sendGo(name, go.build('ping', json))).status).toBe(204);
      expect(eventAt(name)!.event).toBe('ping');
    });

    it('accepts a reference to a body only as an object, by POST', async () => {
      const base64 = Buffer.from(JSON.stringify(reference)).toString('base64');
      const token = go.sign('order.created', base64);

      expect(code(await post(at(name), { token, body: json }))).toBe('400 hash_required');
      expect(code(await head(at(name), go.sign('order.created', reference)))).toBe(
        '400 hash_unsupported',
      );
      expect(eventAt(name)).toBeUndefined();
    });

    it('acknowledges a repeated request', async () => {
      const request = go.build('order.created', json);

      const answers = [await sendGo(name, request), await sendGo(name, request)];
      expect(answers.map(({ status }) => status)).toEqual([204, 204]);
      expect(answers[1]!.headers['webhook-duplicate']).toBe('true');
    });
  });

  it.each<[string, string, GoRequest, string]>([
    ['base64 data', 'spec', go.build('order.created', json), '401 invalid_claim'],
    ['null data', 'spec', go.build('order.created', null), '401 invalid_claim'],
    ['a reference', 'spec', go.buildPost('order.created', json), '400 hash_required'],
    ['its typ', 'new', go.build('order.created', json), '401 invalid_token'],
  ])(
    'rejects %s of the reference if its profile is disabled',
    async (_what, name, request, expected) => {
      expect(code(await sendGo(name, request))).toBe(expected);
      expect(eventAt(name)).toBeUndefined();
    },
  );

  it('rejects a body that does not match the reference, before and after reading it', async () => {
    const token = go.sign('order.created', reference);
    const changed = Buffer.from(json.toString().replace('7', '8'));
    const longer = Buffer.concat([json, Buffer.from(' ')]);

    expect(code(await post(at('old'), { token, body: changed }))).toBe('400 hash_mismatch');
    expect(code(await post(at('old'), { token, body: longer }))).toBe('400 hash_mismatch');
    // The event id is still free, so the right body is accepted.
    expect((await post(at('old'), { token, body: json })).status).toBe(204);
  });

  it('rejects a Content-Length that differs from the token without waiting for the body', async () => {
    const connection = await RawConnection.open(portOf('old'));
    connection.write([
      'POST /webhooks HTTP/1.1',
      'Host: x',
      `Authorization: Bearer ${go.sign('order.created', reference)}`,
      'Content-Type: application/json',
      `Content-Length: ${json.length + 1}`,
      '',
      '',
    ]);

    const answer = await connection.answer();
    expect(answer).toMatchObject({ status: 400, headers: { 'webhook-error': 'hash_mismatch' } });
    connection.destroy();
  });

  it.each([
    ['old', '400 hash_mismatch'],
    ['all', '400 hash_mismatch'],
    ['spec', '204 undefined'],
  ])(
    'receiver %s answers a body without Content-Length, with both digests: %s',
    async (name, expected) => {
      const token = forged({
        claims: {
          nbf: Math.floor(Date.now() / 1_000),
          webhook: { event: 'order.created', data: reference, hash },
        },
      });
      const connection = await RawConnection.open(portOf(name));
      connection.write([
        'POST /webhooks HTTP/1.1',
        'Host: x',
        `Authorization: Bearer ${token}`,
        'Content-Type: application/json',
        'Transfer-Encoding: chunked',
        '',
        json.length.toString(16),
      ]);
      connection.write(json).write('\r\n0\r\n\r\n');

      const answer = (await connection.answer())!;
      expect(`${answer.status} ${answer.headers['webhook-error']}`).toBe(expected);
      connection.destroy();
    },
  );

  it.each<[string, object, string, string]>([
    ['spec', { data: reference, hash }, '204 undefined', 'webhook-token'],
    ['spec', { data: { ...reference, size: 1 }, hash }, '204 undefined', 'webhook-token'],
    ['old', { data: reference, hash }, '204 undefined', 'swt-draft-00'],
    ['all', { data: reference, hash }, '204 undefined', 'swt-draft-00'],
    ['all', { data: { ...reference, hash: '0'.repeat(64) }, hash }, '400 hash_mismatch', ''],
    ['all', { data: reference, hash: `sha256:${'0'.repeat(64)}` }, '400 hash_mismatch', ''],
    ['all', { data: { ...reference, size: 1 }, hash }, '400 hash_mismatch', ''],
  ])(
    'receiver %s handles a token with both digests: %j',
    async (name, webhook, expected, profile) => {
      const nbf = Math.floor(Date.now() / 1_000);
      const token = forged({ claims: { nbf, webhook: { event: 'order.created', ...webhook } } });

      expect(code(await post(at(name), { token, body: json }))).toBe(expected);
      if (profile === '') return expect(eventAt(name)).toBeUndefined();
      expect(eventAt(name)).toMatchObject({ profile, data: JSON.parse(json.toString()) });
      expect(eventAt(name)!.claims.webhook).toEqual({ event: 'order.created', ...webhook });
    },
  );

  describe.each(['new', 'all'])('swt-draft-02 (receiver %s)', (name) => {
    const signed = (retryCount?: number) =>
      signWebhook(
        'order.created',
        { id: 7 },
        { issuer: ISSUER, secret: SECRET, profile: 'swt-draft-02', retryCount },
      );

    it('accepts a POST and provides the attempt number', async () => {
      for (const retryCount of [undefined, 0, 4]) {
        const { method, headers, body } = await signed(retryCount);

        expect((await send(at(name), { method, headers, body: body! })).status).toBe(204);
      }
      const { events } = started.get(name)!.handlers;
      expect(events.map(({ attempt }) => attempt)).toEqual([undefined, 1, 5]);
      expect(events[0]).toMatchObject({ profile: 'swt-draft-02', data: { id: 7 } });
    });

    it('rejects HEAD and names the allowed method', async () => {
      const answer = await head(at(name), (await signed()).token);

      expect(code(answer)).toBe('405 method_not_allowed');
      expect(answer.headers['allow']).toBe('POST');
      expect(eventAt(name)).toBeUndefined();
    });

    it('accepts an empty body without a hash', async () => {
      const { token } = await signWebhook('order.created', undefined, {
        issuer: ISSUER,
        secret: SECRET,
        profile: 'swt-draft-02',
      });

      expect((await send(at(name), { token })).status).toBe(204);
      expect(eventAt(name)).toMatchObject({ method: 'POST', data: undefined });
    });
  });

  it('rejects typ SWT if swt-draft-02 is disabled', async () => {
    const { token, body } = await signWebhook(
      'order.created',
      { id: 7 },
      {
        issuer: ISSUER,
        secret: SECRET,
        profile: 'swt-draft-02',
      },
    );

    expect(code(await post(at('spec'), { token, body: body! }))).toBe('401 invalid_token');
  });

  it('verifies a request of the reference without Content-Length, from another transport', async () => {
    const verifier = started.get('old')!.app.app.get(WebhookVerifier);
    const { token, body } = go.buildPost('order.created', json);

    const event = await verifier.verify({
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: body!,
    });
    expect(event.data).toEqual(JSON.parse(json.toString()));
  });
});
