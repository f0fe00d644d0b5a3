import { Readable } from 'node:stream';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type WebhookError, WebhookVerifier } from 'nestjs-webhook-token';
import { createExpress } from '../fixtures/adapters.js';
import { head, post } from '../fixtures/http-client.js';
import { sendOver2 } from '../fixtures/http2-client.js';
import {
  ISSUER,
  SECRET,
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

const options = receiverOptions({
  issuers: [{ issuer: ISSUER, secret: SECRET, contentTypes: ['Application/JSON', 'image/*'] }],
});

describe('contentTypes of an issuer', () => {
  let started: StartedApp;
  beforeAll(async () => {
    started = await startApp(createExpress(), { options });
  });
  afterAll(async () => started.app.close());

  const statusOf = async (contentType: string, body = '{}'): Promise<number> => {
    const headers = { 'content-type': contentType };
    return (await post(started.origin, signedBody(body), { headers })).status;
  };

  it.each(['application/json', 'APPLICATION/JSON ; Charset="UTF-8"', 'image/png'])(
    'accept %s',
    async (contentType) => {
      expect(await statusOf(contentType)).toBe(204);
    },
  );

  it.each(['text/plain', 'application/jsonl', 'images/png', 'application/*', ''])(
    'reject %j with 415',
    async (contentType) => {
      expect(await statusOf(contentType)).toBe(415);
    },
  );

  it('reject a charset other than UTF-8, since the token does not sign it', async () => {
    expect(await statusOf('application/json; charset=utf-16le', '"a"')).toBe(415);
  });

  it.each([
    ['application/json', undefined],
    ['text/plain', 'unsupported_content_type'],
  ])('apply to a stream of %s without a declared length', async (contentType, code) => {
    const { token, body } = signedBody('{}');
    const verifying = started.app.get(WebhookVerifier).verify({
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': contentType },
      body: Readable.from([body]),
    });

    expect(
      await verifying.then(
        () => undefined,
        ({ code }: WebhookError) => code,
      ),
    ).toBe(code);
  });

  it('apply over HTTP/2, where no length need be declared', async () => {
    const { app, origin } = await startApp(new FastifyAdapter({ http2: true } as object), {
      options,
    });
    const statusOver2 = async (contentType: string): Promise<unknown> => {
      const answer = await sendOver2(origin, { method: 'POST', ...signedBody('{}'), contentType });
      return answer[':status'];
    };

    expect(await statusOver2('application/json')).toBe(204);
    expect(await statusOver2('text/plain')).toBe(415);
    await app.close();
  });

  it('do not apply to a POST without a body', async () => {
    const empty = { token: signed({ data: {} }), body: Buffer.alloc(0) };
    expect((await post(started.origin, empty)).status).toBe(204);
  });

  it('do not apply to data in the token', async () => {
    expect((await head(started.origin, signed({ data: {} }))).status).toBe(204);
  });

  it('do not record the id of a rejected event', async () => {
    const event = signedBody('{}');
    const text = { headers: { 'content-type': 'text/plain' } };
    const refused = await post(started.origin, event, text);
    expect(refused.headers['webhook-error']).toBe('unsupported_content_type');

    const accepted = await post(started.origin, event);
    expect([accepted.status, accepted.headers['webhook-duplicate']]).toEqual([204, undefined]);
  });
});
