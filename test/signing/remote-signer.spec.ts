import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { inspect } from 'node:util';
import { createTokenVerifier } from 'nestjs-webhook-token/token';
import { RemoteSigner } from '../fixtures/remote-signer.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const ISSUER = 'https://billing.example';
const MARKER = 'PAYLOAD-THAT-NOBODY-MAY-PRINT';
const MINUTE = 60_000;

let ecdsa: RemoteSigner;
let rsa: RemoteSigner;
let receiver: WireReceiver;
let bench: PublisherBench;

beforeAll(async () => {
  [ecdsa, rsa] = await Promise.all([
    RemoteSigner.start('ES256', { kid: 'kms-ec' }),
    RemoteSigner.start('RS256', { kid: 'kms-rsa' }),
  ]);
});

afterAll(() => Promise.all([ecdsa.stop(), rsa.stop()]));

beforeEach(async () => {
  ecdsa.order = rsa.order = 'sign';
  ecdsa.asked.length = 0;
  receiver = await WireReceiver.start();
  bench = await startWith(ecdsa);
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

function startWith(key: RemoteSigner): Promise<PublisherBench> {
  return PublisherBench.start({
    secret: undefined,
    key,
    endpoints: [{ id: 'crm', url: receiver.url }],
  });
}

function verifierOf({ alg, kid, publicKey }: RemoteSigner) {
  return createTokenVerifier({
    issuers: [{ issuer: ISSUER, keys: [{ kid, alg, key: publicKey }] }],
    now: () => bench.clock.now(),
  });
}

/** An object whose JSON has this many bytes. */
function dataOf(bytes: number): { x: string } {
  return { x: 'x'.repeat(bytes - '{"x":""}'.length) };
}

describe('a key in another process', () => {
  it.each(['ES256 in DER', 'ES256 as r and s', 'RS256'])('signs %s', async (name) => {
    const signer = name === 'RS256' ? rsa : ecdsa;
    signer.order = name === 'ES256 as r and s' ? 'raw' : 'sign';
    await bench.stop();
    bench = await startWith(signer);
    const { status } = await bench.publisher.send('crm', 'order.created', { id: 1 });

    const { claims, key } = await verifierOf(signer).verify(receiver.requests[0]!.token);
    expect(status).toBe('delivered');
    expect(claims.webhook).toEqual({ event: 'order.created', data: { id: 1 } });
    expect(key).toEqual({ issuer: ISSUER, alg: signer.alg, kid: signer.kid });
  });

  it('signs for sign() too', async () => {
    const { token } = await bench.publisher.sign('crm', 'order.created', { id: 1 });

    expect((await verifierOf(ecdsa).verify(token)).claims.webhook.data).toEqual({ id: 1 });
  });

  it('signs again for the POST that follows a refused HEAD', async () => {
    receiver.script = ({ method }) => ({ status: method === 'HEAD' ? 405 : 204 });
    const { status } = await bench.publisher.send('crm', 'order.created', { id: 1 });

    expect(status).toBe('delivered');
    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD', 'POST']);
    expect(ecdsa.asked).toHaveLength(2);
  });
});

describe('inline data of an event', () => {
  it.each([
    [512, 'HEAD'],
    [513, 'POST'],
  ])('of %d bytes is sent by %s', async (bytes, method) => {
    await bench.publisher.send('crm', 'order.created', dataOf(bytes));

    expect(receiver.requests.map((request) => request.method)).toEqual([method]);
    expect(Object.keys(receiver.requests[0]!.claims.webhook)).toContain(
      method === 'HEAD' ? 'data' : 'hash',
    );
  });

  it('adds at most a few hundred bytes to what the signer signs', async () => {
    await bench.publisher.send('crm', 'order.created', dataOf(512));
    await bench.publisher.send('crm', 'order.created', dataOf(100_000));

    const [inline, digested] = ecdsa.asked;
    expect(inline).toBeLessThan(1_300);
    expect(digested).toBeLessThan(700);
  });

  it('is limited to the inlineLimit of the signer', async () => {
    const signer = Object.assign(Object.create(ecdsa) as RemoteSigner, { inlineLimit: 20 });
    await bench.stop();
    bench = await startWith(signer);
    await bench.publisher.send('crm', 'order.created', dataOf(20));
    await bench.publisher.send('crm', 'order.created', dataOf(21));

    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD', 'POST']);
  });

  it('above the limit is refused with method HEAD, before anything is signed or recorded', async () => {
    const publishing = bench.publisher.publish('order.created', dataOf(513), { method: 'HEAD' });

    await expect(publishing).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(/at most 512 bytes \(its signer's inlineLimit\)/),
    });
    expect(ecdsa.asked).toEqual([]);
  });

  it('within the limit is recorded with method HEAD, even if the signer is down', async () => {
    ecdsa.order = 'fail';
    await bench.publisher.publish('order.created', dataOf(512), { method: 'HEAD' });
    await bench.reported(1);
    ecdsa.order = 'sign';
    await bench.clock.advance(5_000);
    await bench.reported(2);

    expect(bench.reports.map(({ outcome }) => outcome.type)).toEqual(['retry', 'delivered']);
    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD']);
  });
});

describe('a signer', () => {
  it.each(['fail', 'short', 'text'] as const)(
    'that answers with "%s" fails the attempt, and the next one can succeed',
    async (order) => {
      ecdsa.order = order;
      const result = await bench.publisher.send('crm', 'order.created', { note: MARKER });
      const before = receiver.requests.length;
      ecdsa.order = 'sign';
      await bench.clock.advance(5_000);
      await bench.reported(2);

      expect(result).toMatchObject({
        status: 'scheduled',
        attempts: 1,
        failureReason: 'signing_failed',
        nextAttemptAt: new Date(bench.clock.now()),
      });
      expect(before).toBe(0);
      expect(bench.reports[1]!.outcome).toEqual({ type: 'delivered' });
    },
  );

  it('that fails is logged once until it signs again, and once for all endpoints', async () => {
    await bench.stop();
    bench = await PublisherBench.start({
      secret: undefined,
      key: ecdsa,
      endpoints: [
        { id: 'crm', url: receiver.url },
        { id: 'erp', url: receiver.url },
        { id: 'own', url: receiver.url, secret: 'a secret of one endpoint, of 32 bytes' },
      ],
    });
    const warnings: number[] = [];
    for (const order of ['fail', 'sign', 'fail'] as const) {
      ecdsa.order = order;
      for (const id of ['crm', 'own', 'erp', 'own', 'crm']) {
        await bench.publisher.send(id, 'order.created', {});
      }
      warnings.push(bench.logs('warn').length);
    }

    expect(warnings).toEqual([1, 1, 2]);
  });

  it('that hangs fails the attempt at its timeout, and does not block the endpoint', async () => {
    ecdsa.order = 'hang';
    const first = bench.publisher.send('crm', 'order.created', { id: 1 });
    await asked(1);
    await bench.clock.advance(15_000);
    const result = await first;
    ecdsa.order = 'sign';

    expect(result).toMatchObject({ failureReason: 'signing_failed', durationMs: 15_000 });
    expect(await bench.publisher.send('crm', 'order.created', { id: 2 })).toMatchObject({
      status: 'delivered',
    });
  });

  it('that hangs at the POST after a HEAD fails the attempt too', async () => {
    receiver.script = () => {
      ecdsa.order = 'hang';
      return { status: 405 };
    };
    const sent = bench.publisher.send('crm', 'order.created', { id: 1 });
    await asked(2);
    await bench.clock.advance(15_000);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'signing_failed' });
  });

  it('that hangs does not delay a shutdown, which counts no attempt', async () => {
    ecdsa.order = 'hang';
    const sent = bench.publisher.send('crm', 'order.created', { id: 1 });
    sent.catch(() => undefined);
    await asked(1);
    await bench.stop();

    await expect(sent).rejects.toMatchObject({ code: 'shutting_down' });
    expect(bench.logs('warn')).toEqual([expect.stringContaining('not finished')]);
  });

  it('that keeps failing leads to a dead delivery after the last attempt', async () => {
    ecdsa.order = 'fail';
    await bench.stop();
    bench = await PublisherBench.start({
      secret: undefined,
      key: ecdsa,
      endpoints: [{ id: 'crm', url: receiver.url }],
      retry: { attempts: 2 },
    });
    await bench.publisher.publish('order.created', { id: 1 });
    await bench.reported(1);
    await bench.clock.advance(MINUTE);
    await bench.reported(2);

    expect(bench.reports[1]!.outcome).toEqual({
      type: 'dead',
      reason: 'signing_failed',
      attempts: 2,
    });
  });

  it('that quotes its input in an error is not quoted anywhere', async () => {
    ecdsa.order = 'fail';
    const shown: unknown[] = [await bench.publisher.send('crm', 'order.created', { note: MARKER })];
    await bench.publisher
      .sign('crm', 'order.created', { note: MARKER })
      .catch((error: unknown) => shown.push(error));
    const [, error] = shown as [unknown, Error];

    const quoted = (error.cause as Error).message;
    expect(quoted).toContain('refused: eyJ');
    const text = [...shown, ...bench.logged, ...bench.reports]
      .map((value) => inspect(value, { depth: 8, showHidden: true }) + JSON.stringify(value))
      .join('\n');
    expect(text).toContain('signing_failed');
    expect(text).not.toContain('eyJ');
    expect(text).not.toContain('refused:');
  });
});

/** Resolves after this many requests to the signer. */
async function asked(count: number): Promise<void> {
  while (ecdsa.asked.length < count) await new Promise((turn) => setImmediate(turn));
}
