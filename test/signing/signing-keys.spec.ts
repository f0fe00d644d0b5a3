import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type SigningKeyInput, createTokenVerifier } from 'nestjs-webhook-token/token';
import { KeyProvider } from 'nestjs-webhook-token';
import { Gate } from '../fixtures/gate.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const ISSUER = 'https://billing.example';
const MARKER = 'WHAT-THE-DATABASE-SAID';
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
/** Start time of the test clock. */
const START = Date.UTC(2026, 0, 1);

const at = (ms: number): Date => new Date(START + ms);
const secretOf = (kid: string): string => `the secret ${kid} of this test, which is long enough`;
const key = (kid: string, from?: number, until?: number): SigningKeyInput => ({
  kid,
  key: secretOf(kid),
  ...(from !== undefined && { notBefore: at(from) }),
  ...(until !== undefined && { notAfter: at(until) }),
});

class ScriptedProvider extends KeyProvider<readonly SigningKeyInput[]> {
  override readonly ttl = '1m';
  loads = 0;

  constructor(public give: () => unknown) {
    super();
  }

  override async load(): Promise<readonly SigningKeyInput[]> {
    this.loads++;
    return this.give() as SigningKeyInput[];
  }
}

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
});

afterEach(async () => {
  await bench?.stop();
  await receiver.stop();
});

type Options = Parameters<typeof PublisherBench.start>[0];

async function start(options: Options): Promise<void> {
  bench = await PublisherBench.start({
    secret: undefined,
    endpoints: [{ id: 'crm', url: receiver.url }],
    ...options,
  });
}

/** Sends one event, and returns the kid of the key that signed it, or the reason of the failure. */
async function kidOfNext(): Promise<string | undefined> {
  const { status, failureReason } = await bench.publisher.send('crm', 'order.created', { id: 1 });
  if (status !== 'delivered') return failureReason;
  const { token } = receiver.requests.at(-1)!;
  const kids = ['old', 'new', 'newer', 'other'];
  const verifier = createTokenVerifier({
    issuers: [{ issuer: ISSUER, keys: kids.map((kid) => ({ kid, key: secretOf(kid) })) }],
    now: () => bench.clock.now(),
  });
  return (await verifier.verify(token)).key.kid;
}

describe('a publisher with several keys', () => {
  it('signs with the newest valid key, from the moment it becomes valid', async () => {
    await start({ keys: [key('new', MINUTE), key('old', undefined, 2 * MINUTE)] });
    const kids: unknown[] = [];
    for (const now of [0, MINUTE - 1, MINUTE, 2 * MINUTE, 3 * MINUTE]) {
      bench.clock.set(START + now);
      kids.push(await kidOfNext());
    }

    expect(kids).toEqual(['old', 'old', 'new', 'new', 'new']);
  });

  it.each([
    ['equal keys', [key('old'), key('new')]],
    ['keys that become valid together', [key('old', -MINUTE), key('new', -MINUTE)]],
    ['one without a window before one that has become valid', [key('old'), key('new', -1)]],
    ['one without a window after one that has become valid', [key('new', -1), key('old')]],
    ['keys of which the newest has expired', [key('new', -2), key('other', -1, 0)]],
    ['keys of which the newest is not valid yet', [key('other', 1), key('new')]],
  ])('chooses the newer key: %s', async (_, keys) => {
    await start({ keys });

    expect(await kidOfNext()).toBe('new');
  });

  it('signs with the keys of an endpoint that has its own', async () => {
    await start({
      secret: secretOf('other'),
      endpoints: [{ id: 'crm', url: receiver.url, keys: [key('old'), key('new')] }],
    });

    expect(await kidOfNext()).toBe('new');
  });

  it('signs with its own keys for an endpoint of another issuer', async () => {
    await start({
      keys: [key('old'), key('new')],
      endpoints: [{ id: 'crm', url: receiver.url, issuer: 'https://eu.billing.example' }],
    });
    await bench.publisher.send('crm', 'order.created');

    expect(receiver.requests[0]!.claims.iss).toBe('https://eu.billing.example');
  });

  it('copies the list of keys, so that later changes have no effect', async () => {
    const keys = [key('new')];
    await start({ keys });
    keys.splice(0, 1, key('other'));

    expect(await kidOfNext()).toBe('new');
  });
});

describe('a gap between two keys', () => {
  const keys = [key('old', undefined, MINUTE), key('new', 10 * MINUTE)];

  it('delays deliveries, which are retried until a key is valid', async () => {
    await start({ keys, retry: { schedule: ['0s', '5m'] } });
    bench.clock.set(START + MINUTE);
    const result = await bench.publisher.send('crm', 'order.created', { id: 1 });
    await bench.clock.advance(5 * MINUTE);
    await bench.reported(2);
    await bench.clock.advance(5 * MINUTE);
    await bench.reported(3);

    expect(result).toMatchObject({ status: 'scheduled', failureReason: 'no_signing_key' });
    expect(bench.reports.map(({ outcome }) => outcome.type)).toEqual([
      'retry',
      'retry',
      'delivered',
    ]);
    expect(receiver.requests).toHaveLength(1);
  });

  it('is logged once, with a remedy', async () => {
    await start({ keys });
    bench.clock.set(START + MINUTE);
    await bench.publisher.send('crm', 'order.created', { id: 1 });
    await bench.publisher.send('crm', 'order.created', { id: 2 });

    expect(bench.logs('warn')).toEqual([
      expect.stringMatching(/cannot be signed.*\(no_signing_key\): .*notBefore has passed/),
    ]);
  });

  it('makes sign() reject', async () => {
    await start({ keys });
    bench.clock.set(START + MINUTE);

    await expect(bench.publisher.sign('crm', 'order.created')).rejects.toMatchObject({
      code: 'no_signing_key',
    });
  });

  it('does not prevent an event with method HEAD from being recorded', async () => {
    await start({ keys });
    bench.clock.set(START + MINUTE);

    const { deliveries } = await bench.publisher.publish('order.created', {}, { method: 'HEAD' });

    expect(deliveries).toHaveLength(1);
  });
});

describe('keys of a provider', () => {
  it('are loaded before anything is published, and once while they are fresh', async () => {
    const provider = new ScriptedProvider(() => [key('new')]);
    await start({ keys: provider });

    expect(provider.loads).toBe(1);
    expect([await kidOfNext(), await kidOfNext()]).toEqual(['new', 'new']);
    expect(provider.loads).toBe(1);
  });

  it('change immediately with refresh()', async () => {
    const provider = new ScriptedProvider(() => [key('old')]);
    await start({ keys: provider });
    const before = await kidOfNext();
    provider.give = () => [key('new')];
    await provider.refresh();

    expect([before, await kidOfNext()]).toEqual(['old', 'new']);
  });

  it('change automatically after twice the ttl', async () => {
    const provider = new ScriptedProvider(() => [key('old')]);
    await start({ keys: provider });
    provider.give = () => [key('new')];
    await bench.clock.advance(2 * MINUTE + 1);

    expect(await kidOfNext()).toBe('new');
  });

  it('serve endpoints of several issuers with one load', async () => {
    const provider = new ScriptedProvider(() => [key('new')]);
    await start({
      keys: provider,
      endpoints: [
        { id: 'crm', url: receiver.url },
        { id: 'eu', url: receiver.url, issuer: 'https://eu.billing.example' },
      ],
    });
    await bench.publisher.publish('order.created');
    await receiver.received(2);

    expect(provider.loads).toBe(1);
    expect(new Set(receiver.requests.map(({ claims }) => claims.iss))).toEqual(
      new Set([ISSUER, 'https://eu.billing.example']),
    );
  });

  it.each<[string, () => unknown]>([
    [
      'a load that fails',
      () => {
        throw new Error(MARKER);
      },
    ],
    ['a result that is not a list', () => ({})],
    ['an invalid key', () => [key('new'), { kid: 'weak', key: 'short' }]],
  ])('stay in use after %s, which is reported to the caller and logged', async (_, give) => {
    const provider = new ScriptedProvider(() => [key('old')]);
    await start({ keys: provider });
    provider.give = give;

    await expect(provider.refresh()).rejects.toThrow();

    expect(await kidOfNext()).toBe('old');
    expect(bench.logs('error')).toEqual([expect.stringContaining('The keys of publisher.keys')]);
    expect(JSON.stringify(bench.logged)).not.toContain(MARKER);
  });

  it('delay no delivery while they cannot be loaded, once a load has timed out', async () => {
    const provider = new ScriptedProvider(() => [key('old')]);
    await start({ keys: provider });
    await bench.clock.advance(3 * MINUTE);
    let gate = new Gate();
    provider.give = async () => gate.pass();
    const waiting = kidOfNext();
    await gate.reached;
    await bench.clock.advance(10 * SECOND);
    expect(await waiting).toBe('old');

    gate = new Gate();
    await bench.clock.advance(5 * SECOND);
    expect(await kidOfNext()).toBe('old');
    expect(provider.loads).toBe(3);
  });

  it('expire when they could not be loaded for a day', async () => {
    const provider = new ScriptedProvider(() => [key('old')]);
    await start({ keys: provider });
    provider.give = () => {
      throw new Error(MARKER);
    };
    bench.clock.set(START + 24 * 60 * MINUTE);
    const before = await kidOfNext();
    await bench.clock.advance(MINUTE);

    expect([before, await kidOfNext()]).toEqual(['old', 'no_signing_key']);
    expect(bench.reports.at(-1)!.outcome.type).toBe('retry');
  });

  it.each<[string, SigningKeyInput[]]>([
    ['an empty list', []],
    ['a list of expired keys', [key('old', -2, -1)]],
  ])('are all revoked by %s', async (_, keys) => {
    const provider = new ScriptedProvider(() => [key('old')]);
    await start({ keys: provider });
    provider.give = () => keys;
    await provider.refresh();

    expect(await kidOfNext()).toBe('no_signing_key');
  });

  it.each<[string, () => unknown, RegExp]>([
    [
      'the provider fails',
      () => {
        throw new Error('the database is away');
      },
      /the database is away/,
    ],
    ['it returns no list', () => undefined, /publisher\.keys: must be a list/],
    ['it returns no keys', () => [], /publisher\.keys: must contain at least one/],
    ['a key is invalid', () => [key('a'), 'short'], /publisher\.keys\[1\]: .*at least 32/],
    [
      'all keys have expired',
      () => [key('a', -2, -1)],
      /publisher\.keys: the notAfter of every key/,
    ],
  ])('fail start-up if %s', async (_, give, message) => {
    await expect(start({ keys: new ScriptedProvider(give) })).rejects.toThrow(message);
  });
});
