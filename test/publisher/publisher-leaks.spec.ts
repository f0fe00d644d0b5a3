import { createHmac } from 'node:crypto';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { throwError } from 'rxjs';
import type { SigningKeyInput } from 'nestjs-webhook-token/token';
import {
  InProcessQueue,
  KeyProvider,
  WebhookDeliveries,
  WebhookEndpoints,
  WebhookJwks,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { PUBLISHER_OPTIONS } from '../../lib/publisher/publisher-options.resolver.js';
import { PublisherBench, secret } from './publisher-bench.js';
import { WireReceiver, type Script } from './wire-receiver.js';

const marker = 'PAYLOAD-THAT-NOBODY-MAY-PRINT';
const credential = 'CREDENTIAL-IN-THE-QUERY';
const data = { note: marker };

let receiver: WireReceiver;
let bench: PublisherBench;
let shown: unknown[];

beforeEach(async () => {
  shown = [];
  receiver = await WireReceiver.start();
  await start();
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

describe('no token, secret or payload is printed', () => {
  const echo: Script = (request) => ({
    status: 500,
    headers: { 'X-Echo': request.token, 'Retry-After': marker, 'WWW-Authenticate': request.token },
    body: `${request.token} ${request.body.toString()}`,
  });

  it.each<[string, Script]>([
    ['an answer that echoes the request', echo],
    ['410', (request) => ({ ...(echo(request, 0) as object), status: 410 })],
    ['429', () => ({ status: 429 })],
    [
      'a redirect that echoes the token',
      ({ token }) => ({ status: 302, headers: { Location: token } }),
    ],
    ['a reset', () => 'reset'],
    ['an answer that is not HTTP', ({ token }) => `${token}\r\n\r\n`],
    ['an answer that is too large', ({ token }) => ({ status: 200, body: token.repeat(1_000) })],
  ])('after %s', async (_, script) => {
    receiver.script = script;
    const { publisher } = bench;
    await attempt(publisher.send('crm', 'order.created', data));
    await attempt(publisher.send('crm', 'order.created', [data]));
    await attempt(publisher.send(`${receiver.url}?key=${credential}`, 'order.created', [data]));
    await attempt(publisher.publish('order.created', data));

    expectNothingShown();
  });

  it('after a timeout and a shutdown', async () => {
    receiver.script = () => 'hang';
    const first = attempt(bench.publisher.send('crm', 'order.created', data));
    await receiver.received(1);
    await bench.clock.advance(15_000);
    await first;
    await bench.clock.advance(60_000);
    await receiver.received(2);
    const second = attempt(bench.publisher.send('crm', 'order.created', [data]));
    await receiver.received(3);
    await bench.stop();
    await second;
    await attempt(bench.publisher.publish('order.created', data));

    expect(bench.logs('warn')).toEqual([expect.stringContaining('not finished')]);
    expectNothingShown();
  });

  it('by a refused call', async () => {
    const { publisher } = bench;
    const cycle: Record<string, unknown> = { [marker]: marker };
    cycle[marker] = cycle;
    const refused = [
      publisher.publish('order.created', cycle),
      publisher.publish('order.created', { [marker]: 1n }),
      publisher.publish('order.created', {
        toJSON: () => {
          throw new Error(marker);
        },
      }),
      publisher.publish('order.created', Buffer.from(marker)),
      publisher.publish('order.created', data, { contentType: 'text/csv' }),
      publisher.publish(`${marker}!.x`, data),
      publisher.publish('order.created', data, { tx: { marker } }),
      publisher.send(`https://me:${credential}@crm.example/`, 'order.created', data),
      publisher.send(`http://10.0.0.1/?key=${credential}`, 'order.created', data),
      publisher.send('crm', 'order.created', [data], { method: 'HEAD' }),
      publisher.sign('crm', 'order.created', [data], { method: 'HEAD' }),
    ];
    for (const call of refused) await expect(attempt(call)).resolves.toBe('threw');

    expectNothingShown();
  });

  it('by a full queue', async () => {
    const queue = new InProcessQueue({ maxBytes: 100 });
    await restart({ queue });
    await expect(attempt(bench.publisher.publish('order.created', data))).resolves.toBe('threw');

    expectNothingShown();
  });

  it('by an interceptor or a fake that attaches the request to its error', async () => {
    await bench.stop();
    const request = (config: unknown) =>
      throwError(() => Object.assign(new Error(inspect(config)), { config }));
    bench = await PublisherBench.start({}, { request: request as never });
    await attempt(bench.publisher.send(receiver.url, 'order.created', data));

    expectNothingShown();
  });

  it('by a signer that fails', async () => {
    const { composer } = bench.publisher['sender'];
    composer.compose = () => Promise.reject(new Error(`${secret} ${marker}`));
    await bench.publisher.publish('order.created', data);
    await bench.clock.advance(500);

    expect(bench.logs('error')).toEqual([
      expect.stringContaining('attempt failed before the request was sent (Error)'),
    ]);
    expectNothingShown();
  });

  it('by a delivery that was given up', async () => {
    receiver.script = echo;
    await restart({ retry: { attempts: 1 } });
    await attempt(bench.publisher.send('crm', 'order.created', data));
    await attempt(bench.publisher.send(`${receiver.url}?key=${credential}`, 'order.created', data));
    await bench.clock.advance(0);

    expect(bench.logs('warn')).toHaveLength(2);
    expectNothingShown();
    const dead = JSON.stringify(await bench.dead());
    for (const token of tokens()) expect(dead).not.toContain(token);
    expect(dead).not.toContain(secret);
  });
});

class Keys extends KeyProvider<readonly SigningKeyInput[]> {
  override async load(): Promise<readonly SigningKeyInput[]> {
    return [{ kid: 'provided', key: secret }, secret];
  }
}

/** A signer of the application, which holds credentials of its service. */
const signer = {
  alg: 'HS256' as const,
  password: secret,
  sign: (bytes: Uint8Array) => createHmac('sha256', secret).update(bytes).digest(),
};

it.each<[string, Parameters<typeof PublisherBench.start>[0]]>([
  ['a secret', {}],
  ['a key', { secret: undefined, key: { kid: 'a', key: secret } }],
  ['keys', { secret: undefined, keys: [secret, { kid: 'a', key: secret }] }],
  ['a provider', { secret: undefined, keys: new Keys() }],
  ['a signer', { secret: undefined, key: signer }],
])('a publisher with %s does not print it', async (_, options) => {
  await restart(options);
  await bench.publisher.send('crm', 'order.created', data);

  const text = services()
    .map((part) => printOf(part) + toJson(part))
    .join('\n');
  // Not toContain: the output covers the whole publisher, too long for a message.
  expect([text.includes('crm'), text.includes(secret)]).toEqual([true, false]);
});

it.each<[string, unknown]>([
  ['POST', [data]],
  ['HEAD', data],
])('the objects of a publisher show neither token nor secret around a %s', async (_, sent) => {
  receiver.script = () => 'hang';
  await restart({
    endpoints: [{ id: 'crm', url: receiver.url, headers: { 'X-Api-Key': credential } }],
  });
  const agents = jest.spyOn(bench.http, 'request');
  const sending = attempt(bench.publisher.send('crm', 'order.created', sent));
  await receiver.received(1);
  const parts = (): unknown[] => [
    ...services(),
    ...agents.mock.calls.flatMap(([{ httpAgent, httpsAgent, adapter }]) => [
      httpAgent,
      httpsAgent,
      adapter,
    ]),
  ];
  const print = (): string =>
    parts()
      .map((part) => inspect(part, { depth: 10, maxStringLength: Infinity }))
      .join('\n');
  const during = print();
  await bench.clock.advance(15_000);
  await sending;
  const text = during + print();

  const [token] = tokens();
  expect(token).toMatch(/^ey/);
  // Not toContain: the output covers the whole publisher, too long for a message.
  expect([token!, secret, credential].filter((hidden) => text.includes(hidden))).toEqual([]);
});

/** The publisher with all that it refers to, and its options. */
function services(): unknown[] {
  return [
    WebhookPublisher,
    WebhookEndpoints,
    WebhookDeliveries,
    WebhookJwks,
    PUBLISHER_OPTIONS,
  ].map((part) => bench.module.get<unknown>(part));
}

/** The output of `inspect` for every object that a value refers to. Each is printed once: `depth: Infinity` repeats them. */
function printOf(root: unknown): string {
  const seen = new Set<unknown>([root]);
  let output = '';
  for (const value of seen) {
    if (typeof value !== 'object' || value === null) continue;
    output += inspect(value, { depth: 0, showHidden: true, maxStringLength: Infinity });
    for (const { value: member } of Object.values(Object.getOwnPropertyDescriptors(value)))
      seen.add(member);
    if (value instanceof Map)
      for (const entry of value.entries()) entry.forEach((one) => seen.add(one));
    if (value instanceof Set) for (const member of value) seen.add(member);
  }
  return output;
}

/** As JSON, or nothing for a value with a cycle. */
function toJson(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    return '';
  }
}

it('is detected by this check if it is printed', () => {
  shown.push(Object.assign(new Error('x'), { config: { data } }));

  expect(() => expectNothingShown()).toThrow(marker);
});

async function start(options: Parameters<typeof PublisherBench.start>[0] = {}): Promise<void> {
  bench = await PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }], ...options });
}

async function restart(options: Parameters<typeof PublisherBench.start>[0]): Promise<void> {
  await bench.stop();
  await start(options);
}

/** Collects the values that callers of the publisher see. */
async function attempt(call: Promise<unknown>): Promise<'returned' | 'threw'> {
  try {
    shown.push(await call);
    return 'returned';
  } catch (error) {
    shown.push(error);
    return 'threw';
  }
}

function tokens(): string[] {
  return receiver.requests.flatMap(({ token }) => [token, token.split('.')[2]!]).filter(Boolean);
}

function expectNothingShown(): void {
  const everything = [...shown, ...bench.logged, ...bench.reports.map(({ outcome }) => outcome)];
  expect(everything.length).toBeGreaterThan(0);
  const text = everything
    .flatMap((value) => [
      inspect(value, { depth: Infinity, showHidden: true, maxStringLength: Infinity }),
      JSON.stringify(value),
      value instanceof Error ? `${value.stack}` : '',
    ])
    .join('\n');
  for (const hidden of [secret, marker, credential, ...tokens()])
    expect(text).not.toContain(hidden);
}
