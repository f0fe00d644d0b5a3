import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable } from '@nestjs/common';
import { IsInt } from 'class-validator';
import { createTokenSigner, digest } from 'nestjs-webhook-token/token';
import { OnWebhookEvent, WebhookRoute, WebhookVerifier } from 'nestjs-webhook-token';
import { createFastify } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import { SECRET, signed, signedBody, startApp, type StartedApp } from '../fixtures/receiver-app.js';

const PAYLOAD = 'payload-that-must-not-be-printed';

class Order {
  @IsInt() total!: number;
}

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  onCreated(_order: Order): void {}
  @OnWebhookEvent('order.failing')
  onFailing(): void {
    throw new Error('the database is away');
  }
}

@Controller()
class Own {
  @WebhookRoute('own')
  receive(): void {
    throw new Error('the database is away');
  }
}

const forged = createTokenSigner({ issuer: 'https://shop.example', key: `${SECRET}-other` });

/** Requests that fail in different ways, with the marker in every place of a payload. */
function wrongRequests(): { token: string; body?: Buffer; type?: string; method?: 'HEAD' }[] {
  const data = { note: PAYLOAD };
  const json = JSON.stringify(data);
  return [
    { token: signed({ data }), method: 'HEAD' },
    { token: signed({ event: 'order.failing', data }), method: 'HEAD' },
    { token: forged.sign({ event: 'order.created', data }) as string, method: 'HEAD' },
    { token: `${signed({ data })}x`, method: 'HEAD' },
    { token: signed({ data, hash: digest('sha256', Buffer.from(json)) }), method: 'HEAD' },
    { token: signed({ audience: PAYLOAD }), method: 'HEAD' },
    { ...signedBody(json) },
    { ...signedBody(`{"note": ${PAYLOAD}`) },
    { ...signedBody(json), body: Buffer.from(`${json} `) },
    { token: signed(), body: Buffer.from(json) },
    { ...signedBody(`{"__proto__": "${PAYLOAD}"}`) },
    { ...signedBody(`"${PAYLOAD}"`), type: 'application/json; charset=unheard-of' },
    { ...signedBody(json, { event: 'unknown.event' }) },
  ];
}

describe('the output of a receiver', () => {
  let started: StartedApp;
  beforeEach(async () => {
    started = await startApp(createFastify(), { providers: [Orders], controllers: [Own] });
  });
  afterEach(() => started.app.close());

  it('contains no secret, token or payload', async () => {
    const { origin, logger } = started;
    const tokens: string[] = [];
    const texts: string[] = [];
    for (const path of ['/webhooks', '/own']) {
      for (const { token, body, type, method } of wrongRequests()) {
        tokens.push(token);
        const headers: Record<string, string> = type === undefined ? {} : { 'content-type': type };
        const answer =
          method === 'HEAD'
            ? await head(origin, token, { path })
            : await post(origin, { token, body: body! }, { path, headers });
        texts.push(JSON.stringify(answer.headers), answer.text);
      }
    }
    await send(origin, { headers: { authorization: `Bearer ${PAYLOAD}, Bearer ${PAYLOAD}` } });

    const printed = [...logger.lines, ...texts].join('\n');
    expect(logger.lines.join()).toContain('the database is away');
    expect(printed).toContain('hash_mismatch');
    expectNothingOf(printed, tokens);
  });

  it('contains none of them in the errors of the verifier', async () => {
    const verifier = started.app.get(WebhookVerifier);
    const codes = new Set<string>();
    for (const { token, body, type = 'application/json', method = 'POST' } of wrongRequests()) {
      const request = {
        method,
        headers: { authorization: `Bearer ${token}`, 'content-type': type },
        body,
      };
      await verifier.verify(request).then(
        () => undefined,
        (error: Error & { code: string; toJSON(): unknown }) => {
          codes.add(error.code);
          expectNothingOf(
            [inspect(error, { depth: 9 }), JSON.stringify(error), String(error.stack)].join('\n'),
            [token],
          );
        },
      );
    }
    expect([...codes].sort()).toEqual([
      'bad_signature',
      'hash_mismatch',
      'hash_required',
      'hash_unsupported',
      'invalid_payload',
      'unsupported_encoding',
      'wrong_audience',
    ]);
  });
});

function expectNothingOf(printed: string, tokens: readonly string[]): void {
  expect(printed).not.toContain(SECRET);
  expect(printed).not.toContain(PAYLOAD);
  for (const token of tokens) {
    for (const part of token.split('.').slice(1)) expect(printed).not.toContain(part);
  }
}
