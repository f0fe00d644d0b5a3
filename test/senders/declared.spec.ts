import { afterAll, beforeAll, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { createHmac, generateKeyPairSync, randomUUID, sign, verify } from 'node:crypto';
import {
  customSender,
  github,
  googlePush,
  graph,
  hmacSender,
  jwtSender,
  qstash,
  standardWebhooks,
  staticToken,
  stripe,
  type WebhookSender,
} from 'nestjs-webhook-token/senders';
import { deliverWebhook, TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { send, type Sending } from '../fixtures/http-client.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';

const SECRET = 'a-secret-of-32-characters-or-more';
const NOW = Date.parse('2026-11-28T08:00:00Z');
const clock = new TestClock(NOW);
const BYTES = Buffer.from('c2VjcmV0LWluLWJhc2U2NC1vZi0zMi1ieXRlcw==', 'base64');

const typeOf = ({ data }: { data: unknown }): string => (data as { type: string }).type;
const named = { name: 'acme', event: typeOf };
const hmac = (key: string | Buffer, text: string, encoding: 'hex' | 'base64' | 'base64url') =>
  createHmac('sha256', key).update(text).digest(encoding);

const ed25519 = generateKeyPairSync('ed25519');
const jwtKeys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const keyOf = (key: string | Buffer) => ({ kid: 'k1', alg: 'ES256' as const, key });
const signing = {
  keys: [keyOf(jwtKeys.publicKey.export({ format: 'pem', type: 'spki' }))],
  signingKey: keyOf(jwtKeys.privateKey.export({ format: 'pem', type: 'pkcs8' })),
};
const google = {
  audience: 'https://shop.example/push',
  serviceAccount: 'push@shop.example',
  ...signing,
};

/** As Discord signs: the time and the body, by Ed25519; PING must be answered. */
const discord = customSender({
  ...named,
  name: 'discord',
  verify({ headers, body }) {
    const time = headers.get('x-signature-timestamp') ?? '';
    const signature = Buffer.from(headers.get('x-signature-ed25519') ?? '', 'hex');
    const signed = Buffer.concat([Buffer.from(time), body]);
    return verify(null, signed, ed25519.publicKey, signature) && { timestamp: Number(time) };
  },
  challenge: ({ data }) =>
    (data as { type?: unknown } | undefined)?.type === 1 ? { type: 1 } : undefined,
  sign: ({ event, data, now }) =>
    signedByDiscord(JSON.stringify({ type: event, ...(data as object) }), now),
});

function signedByDiscord(
  body: string,
  now: number,
): { headers: Record<string, string>; body: string } {
  const time = String(Math.floor(now / 1_000));
  const signature = sign(null, Buffer.from(time + body), ed25519.privateKey).toString('hex');
  return { headers: { 'x-signature-timestamp': time, 'x-signature-ed25519': signature }, body };
}

const broken: Record<string, unknown> = {};
broken['self'] = broken;

const SENDERS: Record<string, WebhookSender> = {
  ms: hmacSender({
    ...named,
    secret: SECRET,
    signature: { header: 'x-signature', encoding: 'base64url' },
    timestamp: { header: 'x-time', unit: 'ms' },
    signed: '{timestamp}.{body}',
  }),
  iso: hmacSender({
    ...named,
    secret: BYTES,
    signature: { header: 'x-signature', encoding: 'base64' },
    timestamp: { header: 'x-time', unit: 'iso' },
    signed: '{header:x-id}{timestamp}{body}',
    id: ({ headers }) => headers.get('x-id'),
  }),
  batch: hmacSender({
    ...named,
    secret: SECRET,
    signature: { header: 'x-signature' },
    events: ({ data }) => data as unknown[],
    id: ({ data }) => (data as { id: string }).id,
  }),
  meta: hmacSender({
    ...named,
    secret: SECRET,
    signature: { header: 'x-signature' },
    challenge: ({ method, query, data }) => {
      if (method === 'POST') return typeOf({ data }) === 'check' ? { ok: true } : undefined;
      if (method === 'HEAD') return '';
      return query.get('hub.verify_token') === 'ours'
        ? (query.get('hub.challenge') ?? '')
        : undefined;
    },
  }),
  token: staticToken({
    ...named,
    header: 'x-token',
    value: SECRET,
    challenge: ({ method }) => (method === 'GET' ? 'here' : undefined),
  }),
  github: github({ secret: SECRET }),
  stripe: stripe({ secret: SECRET }),
  jwt: jwtSender({ ...named, ...signing, scheme: 'JWT' }),
  raw: jwtSender({ ...named, ...signing, scheme: 'none' }),
  google: googlePush(google),
  named: googlePush({ ...google, event: () => 'nightly.run' }),
  discord,
  nothing: customSender({ ...named, verify: () => undefined as never }),
  lookup: jwtSender({
    ...named,
    scheme: 'JWT',
    key: () => Promise.reject(new TypeError('no certificate')),
  }),
  hanging: customSender({ ...named, verify: () => new Promise<never>(() => {}) }),
  text: staticToken({
    ...named,
    header: 'x-token',
    value: SECRET,
    events: ({ data }) => [JSON.parse(String(data)) as unknown],
  }),
  away: customSender({ ...named, verify: () => Promise.reject(new Error('no certificate')) }),
  unsigned: customSender({
    ...named,
    verify: ({ target }) => target === '/unsigned?token=ours',
    bodyVerified: false,
    id: ({ data }) => (data as { id: string }).id,
  }),
  number: staticToken({ ...named, header: 'x-token', value: SECRET, id: () => 7 as never }),
  broken: staticToken({
    ...named,
    header: 'x-token',
    value: SECRET,
    challenge: ({ method, query, data }) => {
      const what = method === 'POST' ? typeOf({ data }) : query.get('what');
      if (what === 'throws') throw new TypeError('not-to-be-shown');
      if (what === 'circular') return broken;
      return { list: [], number: 5, null: null, promise: Promise.resolve('1') }[what!] as never;
    },
  }),
  odd: staticToken({ ...named, header: 'x-token', value: SECRET, events: () => ({}) as never }),
};

describe.each(adapters)('a sender that the application declares on %s', (_, createAdapter) => {
  let receiver: StartedApp;
  let handlers: ReceivedEvents;
  beforeAll(async () => {
    receiver = await startApp(createAdapter(), {
      options: {
        clock,
        receiver: Object.entries(SENDERS).map(([name, sender]) => ({ name, path: name, sender })),
      },
      providers: [ReceivedEvents],
    });
    handlers = receiver.app.get(ReceivedEvents);
  });
  beforeEach(() => handlers.clear());
  afterAll(() => receiver.app.close());

  const post = async (name: string, body: string, headers: Sending['headers'] = {}) =>
    send(receiver.origin, { path: `/${name}`, headers, body });
  /** A body of its own, since its digest identifies the event. */
  const bodyOf = (type = 'a.made', more: object = {}) =>
    JSON.stringify({ type, n: randomUUID(), ...more });

  it.each<[string, (at: number) => Record<string, string>, string]>([
    ['milliseconds, base64url', (at) => signedMs(at), 'ms'],
    ['ISO 8601, a key in bytes, a signed header', (at) => signedIso(at), 'iso'],
  ])('accepts a signed time in %s, within the tolerance', async (_case, headersAt, name) => {
    const answers = [];
    for (const distance of [0, -299_000, -301_000]) {
      const { body, ...headers } = headersAt(NOW + distance);
      answers.push((await post(name, body!, headers)).status);
    }

    expect(answers).toEqual([200, 200, 401]);
    expect(handlers.seen).toHaveLength(2);
  });

  function signedMs(at: number): Record<string, string> {
    const body = bodyOf();
    return {
      body,
      'x-time': String(at),
      'x-signature': hmac(SECRET, `${at}.${body}`, 'base64url'),
    };
  }

  function signedIso(at: number): Record<string, string> {
    const [body, id, time] = [bodyOf(), randomUUID(), new Date(at).toISOString()];
    return {
      body,
      'x-id': id,
      'x-time': time,
      'x-signature': hmac(BYTES, id + time + body, 'base64'),
    };
  }

  it('rejects a changed header that is signed, a missing one, and a time in another unit', async () => {
    const { body, ...headers } = signedIso(NOW);
    const { 'x-id': _id, ...without } = headers;
    const answers = [
      await post('iso', body!, { ...headers, 'x-id': 'another' }),
      await post('iso', body!, without),
      await post('iso', body!, { ...headers, 'x-time': String(NOW) }),
    ];

    expect(answers.map(({ json }) => json!['code'])).toEqual([
      'invalid_signature',
      'missing_signature',
      'malformed_signature',
    ]);
    expect(handlers.seen).toEqual([]);
  });

  it.each(['ms', 'iso', 'discord', 'jwt', 'raw'])('delivers a test event to %s', async (name) => {
    const data = { type: 'a.made', n: randomUUID() };
    const answer = await deliverWebhook(receiver.app, 'a.made', data as never, {
      receiver: name,
      sender: SENDERS[name]!,
    });

    expect(answer).toMatchObject({ outcome: 'handled', status: 200 });
  });

  it('handles each event of a list that is signed, and a copy only once', async () => {
    const body = JSON.stringify([
      { type: 'a.made', id: '1' },
      { type: 'b.made', id: '2' },
      { type: 'a.made', id: '1' },
    ]);
    const { status } = await post('batch', body, { 'x-signature': hmac(SECRET, body, 'hex') });

    expect(status).toBe(200);
    expect(handlers.seen.map(({ event, id }) => [event, id])).toEqual([
      ['a.made', '1'],
      ['b.made', '2'],
    ]);
  });

  it('accepts a list without events', async () => {
    const { status } = await post('batch', '[]', { 'x-signature': hmac(SECRET, '[]', 'hex') });

    expect(status).toBe(200);
    expect(handlers.seen).toEqual([]);
  });

  it('answers its checks of the URL, and refuses other requests', async () => {
    const get = (path: string, method = 'GET') => send(receiver.origin, { method, path });
    const check = bodyOf('check');
    const verified = await post('meta', check, { 'x-signature': hmac(SECRET, check, 'hex') });
    const forged = await post('meta', check, { 'x-signature': hmac('another', check, 'hex') });
    const ours = await get('/meta?hub.verify_token=ours&hub.challenge=%3Cb%3E12');
    const answers = [
      ours,
      await get('/meta?hub.verify_token=theirs&hub.challenge=12'),
      await get('/meta', 'HEAD'),
      verified,
      forged,
      await get('/token'),
      await get('/ms'),
    ];

    expect(answers.map(({ status, text }) => (status === 200 ? [status, text] : status))).toEqual([
      [200, '<b>12'],
      405,
      [200, ''],
      [200, '{"ok":true}'],
      401,
      [200, 'here'],
      405,
    ]);
    expect(ours.headers).toMatchObject({
      'content-type': 'text/plain',
      'x-content-type-options': 'nosniff',
    });
    expect(handlers.seen).toEqual([]);
  });

  it.each([
    ['throws', 'failed: TypeError; let it accept any request'],
    ['circular', 'failed: TypeError'],
    ['list', 'returned neither a string nor an object'],
    ['number', 'returned neither a string nor an object'],
    ['null', 'returned neither a string nor an object'],
    ['promise', 'returned neither a string nor an object'],
  ])('says that "challenge" is broken: %s', async (what, problem) => {
    const answers = [
      await send(receiver.origin, { method: 'GET', path: `/broken?what=${what}` }),
      await post('broken', bodyOf(what), { 'x-token': SECRET }),
    ];

    for (const { status, json } of answers) {
      expect([status, json]).toEqual([
        400,
        expect.objectContaining({
          code: 'invalid_payload',
          detail: expect.stringContaining(`the function "challenge" of the sender ${problem}`),
        }),
      ]);
    }
    expect(handlers.seen).toEqual([]);
    // Once, since anyone can send a GET.
    expect(receiver.logger.at('warn').filter((line) => line.includes('"challenge"'))).toEqual([
      expect.stringMatching(
        /^warn: Refused with 400 invalid_payload: the function "challenge" .*; let it .* \(receiver "broken" at \/broken, issuer "acme"\)/,
      ),
    ]);
    expect(receiver.logger.lines.join()).not.toContain('not-to-be-shown');
  });

  it('verifies a request with a function of the application', async () => {
    const { headers, body } = signedByDiscord(bodyOf(), NOW);
    const late = signedByDiscord(bodyOf(), NOW - 301_000);
    const ping = signedByDiscord('{"type":1}', NOW);
    const answers = [
      await post('discord', body, headers),
      await post('discord', body, headers),
      await post('discord', body.replace('a.made', 'b.made'), headers),
      await post('discord', late.body, late.headers),
      await post('discord', ping.body, ping.headers),
    ];

    expect(answers.map(({ status, json }) => [status, json?.['code'] ?? json])).toEqual([
      [200, undefined],
      [200, undefined],
      [401, 'invalid_signature'],
      [401, 'timestamp_out_of_tolerance'],
      [200, { type: 1 }],
    ]);
    expect(handlers.seen).toMatchObject([
      { event: 'a.made', issuer: 'discord', bodyVerified: true },
    ]);
  });

  it('does not accept a request that the function does not accept', async () => {
    const answers = [
      await post('nothing', bodyOf()),
      await post('away', bodyOf()),
      await post('unsigned', bodyOf()),
      await post('unsigned?token=ours', bodyOf('a.made', { id: '1' })),
    ];

    expect(answers.map(({ status, json }) => [status, json?.['code']])).toEqual([
      [401, 'invalid_signature'],
      [503, 'keys_unavailable'],
      [401, 'invalid_signature'],
      [200, undefined],
    ]);
    expect(handlers.seen).toMatchObject([{ id: '1', bodyVerified: false }]);
  });

  it.each([
    ['away', /503: the function "verify" of the sender failed: Error .*declared\.spec/s],
    ['lookup', /503: .*the function "key" failed, TypeError .*declared\.spec/s],
  ])('logs once that the function of "%s" fails, without its message', async (name, line) => {
    const { headers } = await SENDERS['jwt']!.sign({
      event: 'a.made',
      data: { type: 'a.made' },
      now: NOW,
    });
    const answers = [await post(name, bodyOf(), headers), await post(name, bodyOf(), headers)];

    expect(answers.map(({ status }) => status)).toEqual([503, 503]);
    const failed = receiver.logger.at('error').filter((one) => one.includes(`"${name}" rejects`));
    expect(failed).toEqual([expect.stringMatching(line)]);
    expect(failed.join()).not.toContain('no certificate');
  });

  it('does not wait for a function that does not end', async () => {
    const { setTimeout } = globalThis;
    const waits: number[] = [];
    jest.spyOn(globalThis, 'setTimeout').mockImplementation((end: () => void, ms?: number) => {
      if (ms !== 10_000) return setTimeout(end, ms);
      waits.push(ms);
      return setTimeout(end, 0);
    });
    const answer = await post('hanging', bodyOf());
    jest.restoreAllMocks();

    expect([answer.status, waits]).toEqual([503, [10_000]]);
  });

  it('replaces the brackets in a name of Stripe', async () => {
    const event = 'v2.core.account.requirements.updated';
    const data = { type: 'v2.core.account[requirements].updated' };
    const message = { event, data, now: NOW, id: randomUUID() };
    const { headers, body } = await SENDERS['stripe']!.sign(message);
    const answer = await post('stripe', body.toString(), headers);

    expect(answer.status).toBe(200);
    expect(handlers.seen).toMatchObject([{ event, data }]);
  });

  it('takes JSON that is sent as text, if its events are parsed', async () => {
    const answer = await post('text', bodyOf(), {
      'content-type': 'text/plain',
      'x-token': SECRET,
    });

    expect(answer.status).toBe(200);
    expect(handlers.seen).toMatchObject([{ event: 'a.made', data: { type: 'a.made' } }]);
  });

  it.each(['jwt', 'raw'])('expects the word ahead of the token of %s', async (name) => {
    const message = { event: 'a.made', data: { type: 'a.made', n: randomUUID() }, now: NOW };
    const { headers, body } = await SENDERS[name]!.sign(message);
    const token = headers['authorization']!.replace('JWT ', '');
    const answers = [];
    for (const value of [`Bearer ${token}`, token, `JWT ${token}`]) {
      const answer = await post(name, body.toString(), { ...headers, authorization: value });
      answers.push(answer.status);
    }

    expect(answers).toEqual(name === 'jwt' ? [400, 400, 200] : [400, 200, 400]);
  });

  it('tells runs of a job and unwrapped messages apart by their ids, and rejects what has none', async () => {
    const data = { report: 'daily' };
    const { headers, body } = await SENDERS['google']!.sign({ event: 'job', data, now: NOW });
    const {
      'x-cloudscheduler-jobname': job,
      'x-cloudscheduler-scheduletime': _time,
      ...bare
    } = headers;
    const run = (at: string) => ({
      'x-cloudscheduler-jobname': job!,
      'x-cloudscheduler-scheduletime': at,
    });
    const unwrapped = (id: string) => ({ 'x-goog-pubsub-message-id': id });
    const requests = [
      run('1'),
      run('2'),
      run('2'),
      unwrapped('1'),
      unwrapped('2'),
      unwrapped('2'),
      {},
    ];
    const statuses = [];
    for (const more of requests) {
      statuses.push((await post('named', body.toString(), { ...bare, ...more })).status);
    }

    expect(statuses).toEqual([200, 200, 200, 200, 200, 200, 400]);
    expect(handlers.seen.map(({ event }) => event)).toEqual(Array(4).fill('nightly.run'));
  });

  it('names runs of a job and unwrapped messages', async () => {
    const { headers, body } = await SENDERS['google']!.sign({ event: 'job', data: {}, now: NOW });
    const { 'x-cloudscheduler-jobname': _job, ...bare } = headers;
    await post('google', body.toString(), headers);
    await post('google', body.toString(), { ...bare, 'x-goog-pubsub-message-id': randomUUID() });

    expect(handlers.seen.map(({ event }) => event)).toEqual(['job', 'message']);
  });

  it('leaves out an action of GitHub that cannot be in a name', async () => {
    const body = bodyOf('x', { action: 'deploy to prod' });
    const { status } = await post('github', body, {
      'x-hub-signature-256': `sha256=${hmac(SECRET, body, 'hex')}`,
      'x-github-event': 'repository_dispatch',
    });

    expect([status, handlers.seen[0]?.event]).toEqual([200, 'repository_dispatch']);
  });

  it('reads fields named name[] as a list, and rejects other fields of one name', async () => {
    const form = { 'x-token': SECRET, 'content-type': 'application/x-www-form-urlencoded' };
    const list = await post('token', 'type=a.made&tags%5B%5D=1&tags%5B%5D=2', form);
    const twice = await post('token', 'type=a.made&tag=1&tag=2', form);

    expect([list.status, twice.status]).toEqual([200, 400]);
    expect(handlers.seen[0]?.data).toEqual({ type: 'a.made', 'tags[]': ['1', '2'] });
  });

  it('says what is wrong with what a function returned', async () => {
    const answers = [
      await post('number', bodyOf(), { 'x-token': SECRET }),
      await post('odd', bodyOf(), { 'x-token': SECRET }),
    ];

    expect(answers.map(({ json }) => json!['detail'])).toEqual([
      'the id of the event is no string: convert it in "id" of the sender',
      'the function "events" of the sender returned no list',
    ]);
  });
});

it.each([
  [{ signed: '{time}.{body}' }, 'hmacSender.signed: must be a string with one {body}'],
  [{ secret: new Uint8Array() }, 'hmacSender.secret: must be a non-empty string'],
  [{ timestamp: { header: 'x-time', unit: 'min' } }, 'hmacSender.timestamp.unit: must be'],
])('hmacSender refuses %j', (change, problem) => {
  const options = { ...named, secret: SECRET, signature: { header: 'x-signature' }, ...change };

  expect(() => hmacSender(options as never)).toThrow(problem);
});

const missing = process.env['A_SECRET_THAT_IS_NOT_SET'];

it.each<[name: string, create: () => unknown, option: string]>([
  ['a preset', () => stripe({ secret: missing }), 'stripe.secret'],
  ['a list', () => stripe({ secret: [SECRET, missing] }), 'stripe.secret[1]'],
  [
    'hmacSender',
    () => hmacSender({ ...named, secret: missing, signature: { header: 'x-signature' } }),
    'hmacSender.secret',
  ],
  ['standardWebhooks', () => standardWebhooks({ secret: missing }), 'standardWebhooks.secret'],
  ['jwtSender', () => jwtSender({ ...named, secret: missing }), 'jwtSender.secret'],
  ['qstash', () => qstash({ secret: [missing], url: 'https://a.example' }), 'qstash.secret[0]'],
  ['graph', () => graph({ clientState: missing }), 'graph.clientState'],
  [
    'staticToken',
    () => staticToken({ ...named, header: 'x', value: missing }),
    'staticToken.value',
  ],
])('asks for the environment variable of a missing secret of %s', (_, create, option) => {
  const inOption = option.replace(/[[\].]/g, String.raw`\$&`);

  expect(create).toThrow(new RegExp(`${inOption}: .*; is the environment variable set\\?`));
});

it('customSender says what a test needs', async () => {
  const sender = customSender({ ...named, verify: () => true });

  await expect(sender.sign({ event: 'a', data: {}, now: NOW })).rejects.toThrow(
    'acme.sign: is required to sign a test',
  );
});
