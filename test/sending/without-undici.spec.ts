import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { WireReceiver } from '../publisher/wire-receiver.js';
import { answer, NO_ANSWERS, OK } from './hostile-answers.js';
import { HostileReceiver, type Behaviour } from './hostile-receiver.js';
import type { PublisherBench as Bench } from '../publisher/publisher-bench.js';

// A version without `cacheStores` is too old to be used.
jest.unstable_mockModule('undici', () => ({}));
const { PublisherBench } = await import('../publisher/publisher-bench.js');

const DEADLINE = 15_000;
const NO_CONTENT = 'HTTP/1.1 204 x\r\n\r\n';

let bench: Bench;
let good: WireReceiver;
let hostile: HostileReceiver | undefined;

beforeEach(async () => {
  good = await WireReceiver.start();
  bench = await PublisherBench.start({ transport: 'auto' });
});
afterEach(async () => {
  await bench.stop();
  await Promise.all([good.stop(), hostile?.stop()]);
  hostile = undefined;
});

/** An array is not sent inline, so it is a POST. */
const send = async (url: string) => bench.publisher.send(url, 'order.created', ['x']);

describe('a POST without undici', () => {
  it.each([
    ['a few bytes', Buffer.from([0, 1, 0x7f, 0x80, 0xc3, 0xa9, 255, 13, 10])],
    ['more than one segment', Buffer.alloc(40_000, 'é\xff')],
    ['zero bytes', Buffer.alloc(0)],
  ])('has the exact bytes: %s', async (_, bytes) => {
    const contentType = 'application/octet-stream';
    await bench.publisher.send(good.url, 'report.ready', bytes, { contentType });

    const [request] = good.requests;
    expect(request).toMatchObject({ method: 'POST', body: bytes });
    expect(request!.headers).toContainEqual(['Content-Length', String(bytes.length)]);
    expect(request!.headers).toContainEqual(['Host', `127.0.0.1:${good.port}`]);
  });

  it('shares its connection with others, and a shutdown closes it', async () => {
    hostile = await HostileReceiver.start(answer(NO_CONTENT));
    for (let count = 0; count < 10; count++) {
      expect(await send(hostile.url)).toMatchObject({ status: 'delivered' });
    }

    expect(hostile.requests).toBe(10);
    expect(hostile.connections).toBeLessThanOrEqual(2);
    await bench.publisher.beforeApplicationShutdown();
    await hostile.released();
  });

  it.each(NO_ANSWERS)('reports a failure after %s', async (_, behave, failureReason) => {
    hostile = await HostileReceiver.start(behave);

    expect(await send(hostile.url)).toMatchObject({ status: 'scheduled', failureReason });
    await hostile.released();
  });

  it.each<[string, Behaviour]>([
    ['never arrives', () => {}],
    ['stops within its body', answer(`${OK}Content-Length: 100\r\n\r\nabc`)],
  ])('is cut off at the deadline if the answer %s', async (_, behave) => {
    hostile = await HostileReceiver.start(behave);
    const sent = send(hostile.url);
    await hostile.received(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'timeout' });
    await hostile.released();
  });

  it('is delivered after interim answers', async () => {
    hostile = await HostileReceiver.start(answer(`HTTP/1.1 100 Continue\r\n\r\n${NO_CONTENT}`));

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
  });

  it.each([
    [true, 'delivered', undefined],
    [false, 'scheduled', 'tls'],
  ])('trusts the authority of a certificate: %s', async (trusted, status, failureReason) => {
    await bench.stop();
    const [cert, key] = [pem('hooks.test.cert'), pem('hooks.test.key')];
    bench = await PublisherBench.start({
      transport: 'auto',
      ...(trusted && { tls: { ca: cert.toString() } }),
    });
    hostile = await HostileReceiver.start(answer(NO_CONTENT), { tls: { cert, key } });

    const result = await send(hostile.url);
    expect([result.status, result.failureReason]).toEqual([status, failureReason]);
  });
});

function pem(name: string): Buffer {
  return readFileSync(new URL(`../egress/certificates/${name}.pem`, import.meta.url));
}
