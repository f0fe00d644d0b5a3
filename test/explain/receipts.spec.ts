import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createHash } from 'node:crypto';
import { compareReceipts, WebhookVerifier, type WebhookReceipt } from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { PublisherBench, secret } from '../publisher/publisher-bench.js';
import { hashOf } from './receiver-bench.js';

const ISSUER = 'https://billing.example';
const audience = 'https://crm.example';
const data = { id: 'o1', note: 'CUSTOMER-4711' };

describe.each(adapters)('receipts of both ends, receiver on %s', (_, createAdapter) => {
  let started: StartedApp;
  let bench: PublisherBench;
  beforeEach(async () => {
    bench = await PublisherBench.start();
    started = await startApp(createAdapter(), {
      options: {
        receiver: {
          path: 'webhooks',
          issuers: [{ issuer: ISSUER, secret }],
          audience,
        },
        clock: bench.clock,
      },
    });
  });
  afterEach(async () => {
    await started.app.close();
    await bench.module.close();
  });

  it.each(['HEAD', 'POST'] as const)('agree on a %s that arrives unchanged', async (method) => {
    const options = { method, id: 'e1', subject: 'tenant-7', audience } as const;
    const request = await bench.publisher.sign(
      `${started.origin}/webhooks`,
      'order.created',
      data,
      options,
    );
    const verifier = started.app.get(WebhookVerifier);

    const explanation = await verifier.explain(request);

    expect(explanation.verdict).toBe('accepted');
    expect(explanation.steps.filter(({ outcome }) => outcome === 'failed')).toEqual([]);
    expect(compareReceipts(request.receipt!, explanation.receipt!)).toEqual([]);
    expect(request.receipt).toEqual({
      id: 'e1',
      jti: expect.any(String),
      txn: 'e1',
      event: 'order.created',
      issuer: ISSUER,
      audience,
      subject: 'tenant-7',
      alg: 'HS256',
      profile: 'webhook-token',
      method,
      issuedAt: '2026-01-01T00:00:00.000Z',
      expiresAt: '2026-01-01T00:05:00.000Z',
      ...(method === 'POST' && { hash: hashOf(JSON.stringify(data)) }),
      bodyBytes: method === 'POST' ? JSON.stringify(data).length : 0,
      contentType: 'application/json',
      tokenSha256: createHash('sha256').update(request.token).digest('hex'),
    });
    expect(JSON.stringify(explanation)).not.toContain(data.note);
  });

  it('do not use up the event', async () => {
    const request = await bench.publisher.sign(started.origin, 'order.created', data, { audience });
    const verifier = started.app.get(WebhookVerifier);

    await verifier.explain(request);
    await verifier.explain(request);

    await expect(verifier.verify(request)).resolves.toMatchObject({ event: 'order.created' });
    expect(await verifier.explain(request)).toMatchObject({ verdict: 'accepted' });
  });

  it('show what changed on the way', async () => {
    const request = await bench.publisher.sign(started.origin, 'order.created', [1], { audience });
    const explanation = await started.app.get(WebhookVerifier).explain({
      method: request.method,
      headers: { ...request.headers, 'Content-Type': 'application/json; charset=utf-8' },
      body: '[ 1 ]',
    });

    expect(explanation).toMatchObject({ code: 'hash_mismatch', receipt: { authenticated: true } });
    expect(compareReceipts(request.receipt!, explanation.receipt!)).toEqual([
      {
        field: 'contentType',
        sent: 'application/json',
        received: 'application/json; charset=utf-8',
      },
      { field: 'bodyBytes', sent: 3, received: 5 },
    ]);
  });

  it('are part of the result of send, for its last attempt', async () => {
    const result = await bench.publisher.send(`${started.origin}/webhooks`, 'order.created', data, {
      id: 'e1',
      audience,
    });

    expect(result).toMatchObject({
      status: 'delivered',
      receipt: { id: 'e1', txn: 'e1', method: 'HEAD', issuer: ISSUER },
    });
    expect(JSON.stringify(result)).not.toContain(data.note);
  });

  it('are part of a failed result, for the POST if HEAD is not supported', async () => {
    const result = await bench.publisher.send(`${started.origin}/nowhere`, 'order.created', data);

    expect(result).toMatchObject({
      status: 'scheduled',
      statusCode: 404,
      receipt: { method: 'POST', bodyBytes: JSON.stringify(data).length },
    });
  });
});

describe('a receipt', () => {
  it('is absent if no request was made', async () => {
    const bench = await PublisherBench.start({
      endpoints: [{ id: 'gone', url: 'http://127.0.0.1:8/', events: ['**'], disabled: true }],
    });
    const result = await bench.publisher.send('gone', 'order.created', data);
    await bench.module.close();

    expect(result.status).toBe('failed');
    expect(result.receipt).toBeUndefined();
  });

  it('is compared field by field, and the wire format only if both sides know it', () => {
    const sent = { jti: 'a', profile: 'webhook-token', audience: ['x', 'y'] } as const;

    expect(compareReceipts(sent, { jti: 'b', audience: ['x', 'y'] })).toEqual([
      { field: 'jti', sent: 'a', received: 'b' },
    ]);
    expect(compareReceipts({}, { kid: 'k1' } satisfies Partial<WebhookReceipt>)).toEqual([
      { field: 'kid', received: 'k1' },
    ]);
  });
});
