import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { inspect } from 'node:util';
import { TestClock } from 'nestjs-webhook-token/testing';
import { WebhookConfigurationError } from 'nestjs-webhook-token';
import {
  github,
  hmacSender,
  lemonSqueezy,
  paddle,
  shopify,
  slack,
  standardWebhooks,
  stripe,
  zoom,
  type WebhookSender,
} from '../../lib/senders/index.js';
import type { SignedTestMessage } from '../../lib/senders/sender.js';
import { adapters } from '../fixtures/adapters.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { sendTruncated } from '../fixtures/raw-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { slowBody } from '../fixtures/slow-body.js';
import { verifierFor } from '../fixtures/verifier-for.js';

interface Scheme {
  readonly create: (options: { secret: string | string[] }) => WebhookSender;
  readonly secret: string;
  readonly other: string;
  readonly event: string;
  readonly data: Record<string, unknown>;
  readonly header: string;
  /** The signed time, in the header of the signature or in one of its own. */
  readonly timed?: true;
  /** Separates the signatures of one request. */
  readonly separator?: string;
  /** A header with an id that no signature covers. */
  readonly unsignedId?: string;
}

const { privateKey } = generateKeyPairSync('ed25519');
const { d, x } = privateKey.export({ format: 'jwk' });
const seedAndPoint = Buffer.concat([Buffer.from(d!, 'base64url'), Buffer.from(x!, 'base64url')]);

const text = { secret: 'whsec_text_1', other: 'whsec_text_2' };
const SCHEMES: Record<string, Scheme> = {
  'standardWebhooks, v1': {
    create: standardWebhooks,
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    other: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD',
    event: 'user.created',
    data: { id: 'u1' },
    header: 'webhook-signature',
    timed: true,
    separator: ' ',
  },
  'standardWebhooks, v1a': {
    create: standardWebhooks,
    secret: `whsk_${seedAndPoint.toString('base64')}`,
    other: `whpk_${Buffer.alloc(32, 1).toString('base64')}`,
    event: 'user.created',
    data: { id: 'u1' },
    header: 'webhook-signature',
    timed: true,
    separator: ' ',
  },
  stripe: {
    ...text,
    create: stripe,
    event: 'invoice.paid',
    data: { data: { object: { id: 'in_1' } } },
    header: 'stripe-signature',
    timed: true,
    separator: ',',
  },
  github: {
    ...text,
    create: github,
    event: 'issues.opened',
    data: { issue: { number: 1 } },
    header: 'x-hub-signature-256',
    unsignedId: 'x-github-delivery',
  },
  slack: {
    ...text,
    create: slack,
    event: 'app_mention',
    data: { team_id: 'T1' },
    header: 'x-slack-signature',
    timed: true,
  },
  shopify: {
    ...text,
    create: shopify,
    event: 'orders.create',
    data: { id: 1 },
    header: 'x-shopify-hmac-sha256',
    unsignedId: 'x-shopify-webhook-id',
  },
  zoom: {
    ...text,
    create: zoom,
    event: 'meeting.started',
    data: { payload: { object: { id: 'm1' } } },
    header: 'x-zm-signature',
    timed: true,
  },
  paddle: {
    ...text,
    create: paddle,
    event: 'transaction.completed',
    data: { data: { id: 't1' } },
    header: 'paddle-signature',
    timed: true,
    separator: ';',
  },
  lemonSqueezy: {
    ...text,
    create: lemonSqueezy,
    event: 'order_created',
    data: { data: { id: '1' } },
    header: 'x-signature',
    unsignedId: 'x-request-id',
  },
  hmacSender: {
    ...text,
    create: ({ secret }) =>
      hmacSender({
        name: 'acme',
        secret,
        signature: { header: 'x-acme', encoding: 'base64', algorithm: 'sha512' },
        timestamp: { header: 'x-acme-time' },
        signed: '{body}|{timestamp}',
        event: ({ data }) => (data as { kind: string }).kind,
      }),
    event: 'thing.made',
    data: { kind: 'thing.made' },
    header: 'x-acme',
    timed: true,
  },
};

const clock = new TestClock(Date.parse('2026-11-24T10:00:00.400Z'));

describe.each(adapters)('a receiver of another sender on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let handlers: ReceivedEvents;
  beforeAll(async () => {
    receiver = await startApp(createAdapter(), {
      options: {
        receiver: Object.entries(SCHEMES).map(([name, { create, secret, other }]) => ({
          name,
          path: pathOf(name),
          // Both are valid while a secret is rotated; a request with a third one is forged.
          sender: create({ secret: [secret, other] }),
          maxBodyBytes: 10_000,
        })),
        clock,
      },
      providers: [ReceivedEvents],
    });
    handlers = receiver.app.get(ReceivedEvents);
  });
  beforeEach(() => handlers.clear());
  afterAll(() => receiver.app.close());

  describe.each(Object.entries(SCHEMES))('%s', (name, scheme) => {
    const { create, secret, event, data, header } = scheme;
    const sender = create({ secret });
    const acknowledged = sender.name === 'standard-webhooks' ? 204 : 200;

    const sign = async (now = clock.now(), id?: string): Promise<SignedTestMessage> =>
      sender.sign({ event, data: { ...data, n: nextNumber() }, now, id });
    const deliver = ({ headers, body }: Sent): Promise<Answer> =>
      send(receiver.origin, { path: `/${pathOf(name)}`, headers, body });

    function expectRefused(answer: Answer, code: string): void {
      expect([answer.status, answer.headers['webhook-error']]).toEqual([401, code]);
      expect(answer.headers['www-authenticate']).toBeUndefined();
      expect(handlers.seen).toEqual([]);
    }

    it('accepts a signed request, and hands its event to the handler', async () => {
      const answer = await deliver(await sign());
      const [seen] = handlers.seen;

      expect(answer.status).toBe(acknowledged);
      expect(seen).toMatchObject({ event, issuer: sender.name, profile: sender.name });
      expect(seen).toMatchObject({ bodyVerified: true, method: 'POST', receiver: name });
      expect(seen!.data).toMatchObject(data);
    });

    it('accepts the second of its secrets', async () => {
      // The private key to the other public key is not known.
      if (scheme.other.startsWith('whpk_')) return;
      const answer = await deliver(
        await create({ secret: scheme.other }).sign({ event, data, now: clock.now() }),
      );

      expect(answer.status).toBe(acknowledged);
    });

    it('refuses a signature with another secret', async () => {
      const wrong = `whsec_${Buffer.alloc(32, 9).toString('base64')}`;
      const { headers, body } = await sign();
      const forged = await create({ secret: wrong }).sign({ event, data, now: clock.now() });
      const taken = { ...headers, [header]: forged.headers[header]! };

      // An Ed25519 receiver knows no `v1`, so the signature has no form that it uses.
      const code = name.endsWith('v1a') ? /(?:in)?valid|malformed/ : /^invalid_signature$/;
      const answers = [await deliver(forged), await deliver({ headers: taken, body })];

      for (const { status, headers: got } of answers) {
        expect(status).toBe(401);
        expect(got['webhook-error']).toMatch(code);
      }
      expect(handlers.seen).toEqual([]);
    });

    it('refuses a changed body', async () => {
      const { headers, body } = await sign();
      const changed = Buffer.from(body);
      changed[changed.indexOf('"n":') + 4]! ^= 1;

      expectRefused(await deliver({ headers, body: changed }), 'invalid_signature');
      expectRefused(await deliver({ headers, body: `${body.toString()} ` }), 'invalid_signature');
      expectRefused(await deliver({ headers, body: '' }), 'invalid_signature');
    });

    it.each([-301_000, 301_000])('refuses a time that is %i ms away', async (distance) => {
      const { status, headers } = await deliver(await sign(clock.now() + distance));

      expect(status).toBe(scheme.timed ? 401 : acknowledged);
      if (scheme.timed) expect(headers['webhook-error']).toBe('timestamp_out_of_tolerance');
    });

    it.each([-300_000, 299_000])('accepts a time that is %i ms away', async (distance) => {
      expect((await deliver(await sign(clock.now() + distance))).status).toBe(acknowledged);
    });

    it('refuses a body that ends after the time that is signed has run out', async () => {
      if (scheme.timed !== true) return;
      const own = new TestClock(clock.now());
      const verifier = verifierFor({ sender }, own);
      const { headers, body } = await sign();
      const verify = async (ms: number): Promise<unknown> =>
        verifier.verify({ method: 'POST', headers, body: slowBody(body, own, ms) });
      const code = 'timestamp_out_of_tolerance';

      await expect(verify(299_000)).resolves.toMatchObject({ event });
      await expect(verify(2_000)).rejects.toMatchObject({ code });
    });

    it('refuses an old request with a new time', async () => {
      if (!scheme.timed) return;
      const old = await sign(clock.now() - 400_000);
      const [from, to] = [clock.now() - 400_000, clock.now()].map((ms) => Math.floor(ms / 1_000));
      const headers = Object.fromEntries(
        Object.entries(old.headers).map(([key, value]) => [key, value.replace(`${from}`, `${to}`)]),
      );

      expectRefused(await deliver({ ...old, headers }), 'invalid_signature');
    });

    it('acknowledges a replay without handling it again', async () => {
      const request = await sign();
      const answers = [await deliver(request), await deliver(request)];

      expect(answers.map(({ status }) => status)).toEqual([acknowledged, acknowledged]);
      expect(answers[1]!.headers['webhook-duplicate']).toBe('true');
      expect(handlers.seen).toHaveLength(1);
    });

    it('recognises a replay with another unsigned id', async () => {
      if (scheme.unsignedId === undefined) return;
      const request = await sign();
      await deliver(request);
      const headers = { ...request.headers, [scheme.unsignedId]: 'another' };
      const replay = await deliver({ ...request, headers });

      expect(replay.headers['webhook-duplicate']).toBe('true');
      expect(handlers.seen).toHaveLength(1);
    });

    it('accepts one valid signature among several', async () => {
      if (scheme.separator === undefined) return;
      const { headers, body } = await sign();
      const { [header]: value = '' } = headers;
      const parts = value.split(scheme.separator);
      const wrong = (await sign(clock.now() - 1_000)).headers[header]!.split(scheme.separator).at(
        -1,
      )!;
      const both = [...parts.slice(0, -1), wrong, parts.at(-1)].join(scheme.separator);

      expect((await deliver({ headers: { ...headers, [header]: both }, body })).status).toBe(
        acknowledged,
      );
    });

    it('accepts 16 signatures, of which one is valid', async () => {
      if (scheme.separator === undefined) return;
      const { headers, body } = await sign();
      const parts = headers[header]!.split(scheme.separator);
      const wrong = (await sign(clock.now() - 1_000)).headers[header]!.split(scheme.separator).at(
        -1,
      )!;
      const many = [...parts.slice(0, -1), ...Array<string>(15).fill(wrong), parts.at(-1)];
      const value = many.join(scheme.separator);

      expect((await deliver({ headers: { ...headers, [header]: value }, body })).status).toBe(
        acknowledged,
      );
    });

    it('refuses more than 16 signatures', async () => {
      if (scheme.separator === undefined) return;
      const { headers, body } = await sign();
      const { [header]: value = '' } = headers;
      const last = value.split(scheme.separator).at(-1)!;
      const many = [value, ...Array<string>(16).fill(last)].join(scheme.separator);

      const answer = await deliver({ headers: { ...headers, [header]: many }, body });

      expectRefused(answer, 'malformed_signature');
    });

    it('refuses a repeated header of the signature', async () => {
      const { headers, body } = await sign();
      for (const repeated of Object.keys(headers)) {
        const isSignature = repeated === header || /time|^webhook-id$/.test(repeated);
        if (!isSignature) continue;
        const twice = { ...headers, [repeated]: [headers[repeated]!, headers[repeated]!] };

        expectRefused(await deliver({ headers: twice, body }), 'malformed_signature');
      }
    });

    it('refuses a request without the signature', async () => {
      const { headers, body } = await sign();
      const { [header]: _signature, ...others } = headers;

      expectRefused(await deliver({ headers: others, body }), 'missing_signature');
      expectRefused(
        await deliver({ headers: { ...headers, [header]: '' }, body }),
        'missing_signature',
      );
    });

    it.each<[string, (signature: string) => string]>([
      ['upper case', (one) => one.toUpperCase()],
      ['base64url', (one) => `${one.replaceAll('+', '-').replaceAll('/', '_')}_`],
      ['a cut signature', (one) => one.slice(0, -2)],
      ['a longer signature', (one) => `${one}0`],
      ['no signature', () => ''],
    ])('refuses %s', async (_form, change) => {
      const { headers, body } = await sign();
      const [, start = '', signature = ''] = /^(.*(?:=|,))?([^=,]+=*)$/.exec(headers[header]!)!;
      const changed = { ...headers, [header]: `${start}${change(signature)}` };
      const { status, headers: got } = await deliver({ headers: changed, body });

      expect(status).toBe(401);
      expect(got['webhook-error']).toMatch(/^(?:invalid|malformed|missing)_signature$/);
    });

    it('rejects a body that ends too early', async () => {
      const { headers, body } = await sign();
      await sendTruncated(receiver.port, `/${pathOf(name)}`, { headers, body });

      expect(handlers.seen).toEqual([]);
      expect((await deliver({ headers, body })).status).toBe(acknowledged);
    });

    it('rejects other methods, content encodings and too many bytes', async () => {
      const { headers, body } = await sign();
      const path = `/${pathOf(name)}`;
      const answers = [
        await send(receiver.origin, { path, method: 'HEAD', headers }),
        await deliver({ headers: { ...headers, 'content-encoding': 'gzip' }, body }),
        await deliver({ headers, body: Buffer.alloc(10_001) }),
      ];

      expect(answers.map(({ status }) => status)).toEqual([405, 415, 413]);
      expect(answers[0]!.headers['allow']).toBe('POST');
      expect(handlers.seen).toEqual([]);
    });

    it('does not log a forged request as a warning', async () => {
      const warned = (): string[] => ['warn', 'error'].flatMap((one) => receiver.logger.at(one));
      const before = warned();
      await deliver({ headers: { [header]: 'x' }, body: '{}' });

      expect(warned()).toEqual(before);
    });
  });

  it('handles one body of two shops of Shopify, and each only once', async () => {
    const sender = shopify({ secret: text.secret });
    const data = { locale: 'fr', published: false };
    const signed = await sender.sign({ event: 'locales.create', data, now: clock.now(), id: 'w' });
    const deliver = async (shop: string): Promise<unknown> => {
      const headers = { ...signed.headers, 'x-shopify-shop-domain': `${shop}.myshopify.com` };
      const { headers: got } = await send(receiver.origin, {
        path: '/shopify',
        ...signed,
        headers,
      });
      return got['webhook-duplicate'];
    };

    expect([await deliver('a'), await deliver('b'), await deliver('a')]).toEqual([
      undefined,
      undefined,
      'true',
    ]);
    expect(handlers.seen.map(({ claims }) => claims['headers'])).toMatchObject([
      { 'x-shopify-shop-domain': 'a.myshopify.com' },
      { 'x-shopify-shop-domain': 'b.myshopify.com' },
    ]);
  });

  it('answers the ssl_check of Slack only if it is signed', async () => {
    const body = 'ssl_check=1&token=x';
    const time = `${Math.floor(clock.now() / 1_000)}`;
    const mac = createHmac('sha256', text.secret).update(`v0:${time}:${body}`).digest('hex');
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const proof = { 'x-slack-request-timestamp': time, 'x-slack-signature': `v0=${mac}` };
    const path = '/slack';
    const answers = [
      await send(receiver.origin, { path, headers: { ...form, ...proof }, body }),
      await send(receiver.origin, { path, headers: form, body }),
      await send(receiver.origin, { path: `${path}?${body}`, method: 'GET' }),
    ];

    expect(answers.map(({ status }) => status)).toEqual([200, 401, 405]);
    expect(handlers.seen).toEqual([]);
  });
});

describe.each(Object.entries(SCHEMES))('%s', (_, { create, secret, event }) => {
  it('does not print its secret', () => {
    const sender = create({ secret });
    const part = secret.slice(8, 24);

    expect(`${inspect(sender, { depth: 9 })}${JSON.stringify(sender)}`).not.toContain(part);
  });

  it.each<[string, unknown]>([
    ['an empty secret', ''],
    ['no secret', undefined],
    ['an empty list', []],
    ['an empty secret in a list', [secret, '']],
    ['a number', 1],
  ])('refuses %s', (_case, wrong) => {
    expect(() => create({ secret: wrong as string })).toThrow(WebhookConfigurationError);
  });

  it('refuses to sign a test event whose data names another event', async () => {
    const signing = create({ secret }).sign({ event: `${event} `, data: {}, now: 0 });

    await expect(signing).rejects.toThrow(WebhookConfigurationError);
  });
});

type Sent = { headers: Record<string, string | string[]>; body: Buffer | string };

function pathOf(name: string): string {
  return name.replace(/\W+/g, '-');
}

let number = 1_000_000;
/** So that every body differs. */
function nextNumber(): number {
  return (number += 2);
}
