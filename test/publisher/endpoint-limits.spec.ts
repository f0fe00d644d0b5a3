import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { WebhookDeliveries } from '../../lib/index.js';
import { PublisherBench } from './publisher-bench.js';
import { WireReceiver } from './wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

async function start(limits: object): Promise<void> {
  bench = await PublisherBench.start({
    endpoints: [
      { id: 'erp', url: receiver.url, events: ['order.*'], method: 'POST', ...limits },
      { id: 'crm', url: receiver.url, events: ['refund.*'], method: 'POST' },
    ],
  });
}

describe('an endpoint with limits', () => {
  it('gets its burst, and shows the other deliveries as limited', async () => {
    await start({ rateLimit: { perSecond: 0.5, burst: 2 } });
    for (let n = 0; n < 4; n++) await bench.publisher.publish('order.created', { n });
    await bench.publisher.publish('refund.created', {});
    await bench.reported(3);
    const deliveries = bench.module.get(WebhookDeliveries);
    const { deliveries: pending } = await deliveries.list({ status: 'pending' });

    expect(bench.reports).toHaveLength(3);
    expect(pending.map(({ endpointId, limited }) => [endpointId, limited])).toEqual([
      ['erp', true],
      ['erp', true],
    ]);
    await bench.clock.advance(2_000);
    await bench.reported(4);
    await bench.clock.advance(2_000);
    await bench.reported(5);
    expect((await deliveries.stats()).delivered).toBe(5);
  });

  it('pauses after a 429, and continues at a lower rate', async () => {
    await start({ concurrency: 1, rateLimit: { perSecond: 1, burst: 5 } });
    let requests = 0;
    receiver.script = () => (++requests === 1 ? { status: 429 } : { status: 204 });
    for (let n = 0; n < 3; n++) await bench.publisher.publish('order.created', { n });
    await bench.reported(1);
    await bench.clock.advance(59_000);
    expect(bench.reports).toHaveLength(1);

    await bench.clock.advance(1_000);
    await bench.reported(2);
    await bench.clock.advance(1_000);
    expect(bench.reports).toHaveLength(2);
    await bench.clock.advance(1_000);
    await bench.reported(3);
  });
});

describe('send to an endpoint with limits', () => {
  it('does not wait for the end of a pause', async () => {
    await start({ concurrency: 1 });
    receiver.script = () => ({ status: 429, headers: { 'Retry-After': '3600' } });
    await bench.publisher.send('erp', 'order.created', {});
    const sent = bench.publisher.send('erp', 'order.created', {});
    for (let step = 0; step < 40; step++) await bench.clock.advance(50);

    expect(await sent).toMatchObject({ status: 'scheduled', attempts: 0 });
  });

  it('waits for an attempt that is under way', async () => {
    await start({ concurrency: 1, rateLimit: { perSecond: 0.01 } });
    receiver.script = () => 'hang';
    let isEnded = false;
    const sent = bench.publisher
      .send('erp', 'order.created', {}, { signal: AbortSignal.timeout(1_000) })
      .finally(() => (isEnded = true));
    sent.catch(() => {});
    await receiver.received(1);
    for (let step = 0; step < 60; step++) await bench.clock.advance(50);
    expect(isEnded).toBe(false);

    await expect(sent).rejects.toMatchObject({ code: 'aborted' });
  });
});

describe('the limits of an endpoint', () => {
  it.each([
    [{ concurrency: 0 }, /endpoints\[0\]\.concurrency.*whole number from 1 to 1000/],
    [
      { rateLimit: { perSecond: 0 } },
      /rateLimit\.perSecond.*from 1 \/ 86400, which is one a day, to 10000/,
    ],
    [{ rateLimit: { perSecond: 5e-324 } }, /rateLimit\.perSecond.*one a day/],
    [{ rateLimit: {} }, /rateLimit\.perSecond.*is missing/],
    [{ rateLimit: { perSeconds: 1 } }, /rateLimit\.perSeconds.*did you mean .*perSecond/],
    [{ rateLimit: { perSecond: 1, burst: 0.5 } }, /rateLimit\.burst.*whole number/],
  ])('%j are refused', async (limits, message) => {
    bench = await PublisherBench.start({});
    await expect(
      PublisherBench.start({ endpoints: [{ id: 'erp', url: receiver.url, ...limits } as never] }),
    ).rejects.toThrow(message);
  });
});
