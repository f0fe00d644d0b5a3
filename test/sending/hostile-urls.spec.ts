import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { HOSTILE_URLS } from '../egress/hostile-urls.js';
import { NoWayOut } from '../egress/no-way-out.js';
import { configurationProblems } from '../fixtures/configuration-problems.js';
import { PublisherBench, secret } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const URLS = Object.values(HOSTILE_URLS).flat();

let bench: PublisherBench;
let wayOut: NoWayOut;

beforeAll(async () => {
  wayOut = new NoWayOut();
  bench = await PublisherBench.start({ allowHttp: true, allowedAddresses: [] });
  // Starts to consume recorded deliveries.
  await bench.module.init();
});
afterAll(async () => {
  await bench.stop();
  wayOut.restore();
});

describe('a hostile URL as an endpoint', () => {
  it('is a configuration error with its path', async () => {
    const endpoints = URLS.map((url, index) => ({ id: `e${index}`, url }));
    const publisher = { issuer: 'https://billing.example', secret, allowHttp: true, endpoints };

    expect(await configurationProblems({ publisher })).toEqual(
      URLS.map((_, index) => expect.stringContaining(`publisher.endpoints[${index}].url: `)),
    );
  });
});

describe('send to a hostile URL', () => {
  it.each(URLS)('refuses %j before anything is recorded', async (url) => {
    // A string that does not look like a URL is the id of an endpoint.
    const looksLikeUrl = /^[a-z][a-z0-9+.-]*:\/\//i.test(url);

    await expect(bench.publisher.send(url, 'order.created', {})).rejects.toMatchObject({
      code: looksLikeUrl ? 'destination_blocked' : 'unknown_endpoint',
    });
    if (!URL.canParse(url)) return;
    await expect(bench.publisher.send(new URL(url), 'order.created', {})).rejects.toMatchObject({
      code: 'destination_blocked',
    });
  });
});

describe('a recorded delivery to a hostile URL', () => {
  it.each(URLS)('is given up at its first attempt: %j', async (url) => {
    const before = bench.reports.length;
    await bench.queue.enqueue([
      {
        delivery: {
          id: `to ${url}`,
          eventId: 'e1',
          event: 'order.created',
          url,
          payload: { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' },
          createdAt: bench.clock.now(),
        },
        notBefore: bench.clock.now(),
      },
    ]);
    await bench.reported(before + 1);

    expect(bench.reports.at(-1)).toMatchObject({
      delivery: { id: `to ${url}` },
      outcome: { type: 'dead', reason: 'destination_blocked', attempts: 1 },
    });
    expect(wayOut.tried).toEqual([]);
  });
});

describe('a redirect', () => {
  const STATUSES = [301, 302, 303, 307, 308];
  const LOCATIONS = [
    'http://127.0.0.1:PORT/',
    '//127.0.0.1:PORT/',
    '/elsewhere',
    'file:///etc/passwd',
  ];

  it.each(STATUSES.flatMap((status) => LOCATIONS.map((location) => [status, location] as const)))(
    '%i to %s is a failed attempt, and is not followed',
    async (status, location) => {
      const canary = await WireReceiver.start();
      const receiver = await WireReceiver.start();
      const open = await PublisherBench.start();
      receiver.script = ({ path }) =>
        path === '/elsewhere'
          ? { status: 204 }
          : { status, headers: { Location: location.replace('PORT', String(canary.port)) } };
      // Both methods: HEAD, which a redirect turns into POST, and POST.
      const results = [
        await open.publisher.send(receiver.url, 'order.created', { id: 1 }),
        await open.publisher.send(receiver.url, 'order.created', ['x']),
      ];
      await open.stop();
      await Promise.all([receiver.stop(), canary.stop()]);

      const failed = { status: 'scheduled', statusCode: status, failureReason: `http_${status}` };
      expect(results).toEqual([expect.objectContaining(failed), expect.objectContaining(failed)]);
      expect(receiver.requests.map(({ path }) => path)).toEqual(['/hooks', '/hooks', '/hooks']);
      expect(canary.connections).toBe(0);
    },
  );
});
