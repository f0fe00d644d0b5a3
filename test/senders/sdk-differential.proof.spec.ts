import { describe, expect, it } from '@jest/globals';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { verify as verifyGithub } from '@octokit/webhooks-methods';
import { verifySlackRequest } from '@slack/bolt';
import { Receiver } from '@upstash/qstash';
import { Webhook as StandardWebhook } from 'standardwebhooks';
import { jwtVerify } from 'jose';
import Stripe from 'stripe';
import { Webhook as SvixWebhook } from 'svix';
import {
  a2a,
  github,
  qstash,
  securityEvents,
  slack,
  standardWebhooks,
  stripe,
  type WebhookSender,
} from '../../lib/senders/index.js';
import type { SignedTestMessage } from '../../lib/senders/sender.js';
import { createTokenVerifier } from '../../lib/token/index.js';

/** Requests of each sender. */
const REQUESTS = 10_000;
const SEED = 22;

/** The random numbers of a run (xorshift), so that a failure can be repeated. */
class Dice {
  constructor(private state: number) {}

  below(limit: number): number {
    this.state ^= this.state << 13;
    this.state ^= this.state >>> 17;
    this.state ^= this.state << 5;
    return (this.state >>> 0) % limit;
  }

  one<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }
}

interface Sent {
  headers: Record<string, string>;
  body: Buffer;
}

interface Oracle {
  readonly secret: string;
  readonly other: string;
  readonly create: (secret: string) => WebhookSender;
  readonly event: string;
  /** The header of the signature. */
  readonly header: string;
  /** Whether the vendor's own code accepts a request. Rejects or throws if not. */
  readonly accepts: (sent: Sent) => unknown;
  /** Changes after which this library is stricter. */
  readonly stricter: readonly string[];
  /** Whether the body is the signed token. Here it is in the header of the signature until it is verified. */
  readonly isBody?: boolean;
}

const text = ({ body }: Sent): string => body.toString();
const stripeSdk = new Stripe('sk_test_unused');
const receiver = new Receiver({
  currentSigningKey: 'sig_a-signing-key-of-32-characters',
  nextSigningKey: 'sig_the-next-key-of-32-characters!',
});
const URL = 'https://shop.example/q';

const ORACLES: Record<string, Oracle> = {
  standardwebhooks: {
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    other: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD',
    create: (secret) => standardWebhooks({ secret }),
    event: 'user.created',
    header: 'webhook-signature',
    accepts: (sent) =>
      new StandardWebhook('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw').verify(
        text(sent),
        sent.headers,
      ),
    stricter: ['a fraction of a second'],
  },
  svix: {
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    other: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD',
    create: (secret) => standardWebhooks({ secret }),
    event: 'user.created',
    header: 'svix-signature',
    accepts: (sent) =>
      new SvixWebhook('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw').verify(text(sent), sent.headers),
    stricter: ['a fraction of a second'],
  },
  stripe: {
    secret: 'whsec_stripe_1',
    other: 'whsec_stripe_2',
    create: (secret) => stripe({ secret }),
    event: 'invoice.paid',
    header: 'stripe-signature',
    accepts: ({ headers, body }) =>
      stripeSdk.webhooks.constructEvent(body, headers['stripe-signature'] ?? '', 'whsec_stripe_1'),
    // It takes what is between the first and the second `=` for the signature.
    stricter: ['a future time', 'a fraction of a second', 'a longer signature'],
  },
  '@octokit/webhooks-methods': {
    secret: 'github-secret-1',
    other: 'github-secret-2',
    create: (secret) => github({ secret }),
    event: 'issues.opened',
    header: 'x-hub-signature-256',
    accepts: async (sent) => {
      const { headers } = sent;
      const signature = headers['x-hub-signature-256'] ?? '';
      if (!(await verifyGithub('github-secret-1', text(sent), signature))) throw new Error('no');
    },
    stricter: [],
  },
  '@slack/bolt': {
    secret: 'slack-secret-1',
    other: 'slack-secret-2',
    create: (secret) => slack({ secret }),
    event: 'app_mention',
    header: 'x-slack-signature',
    accepts: (sent) =>
      verifySlackRequest({
        signingSecret: 'slack-secret-1',
        body: text(sent),
        headers: {
          'x-slack-signature': sent.headers['x-slack-signature'] ?? '',
          'x-slack-request-timestamp': Number(sent.headers['x-slack-request-timestamp']),
        },
      }),
    // It takes what is between the first and the second `=` for the signature.
    stricter: ['a future time', 'a longer signature'],
  },
  '@upstash/qstash': {
    secret: 'sig_a-signing-key-of-32-characters',
    other: 'sig_some-other-key-of-32-characters',
    create: (secret) => qstash({ secret, url: URL }),
    event: 'message',
    header: 'upstash-signature',
    accepts: (sent) =>
      receiver.verify({
        signature: sent.headers['upstash-signature'] ?? '',
        body: text(sent),
        url: URL,
        clockTolerance: 60,
      }),
    // It does not check `iat`, and reads base64url that is not canonical.
    stricter: ['a future time', 'a longer signature', 'another character of the signature'],
  },
};

const privateKey = (): string =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({
    type: 'pkcs8',
    format: 'pem',
  }) as string;
const AGENT_KEY = privateKey();
const AGENT_PUBLIC_KEY = createPublicKey(AGENT_KEY);

// `@a2a-js/sdk` verifies agent cards, but no push notifications: the check of their tokens is left to the client.
ORACLES['jose, for A2A push notifications'] = {
  secret: AGENT_KEY,
  other: privateKey(),
  create: (key) =>
    a2a({
      issuer: 'https://agent.example',
      audience: 'https://client.example/notifications',
      signingKey: { kid: 'k1', alg: 'ES256', key },
    }),
  event: 'task.completed',
  header: 'authorization',
  accepts: ({ headers }) =>
    jwtVerify(headers['authorization']!.replace(/^Bearer /, ''), AGENT_PUBLIC_KEY, {
      algorithms: ['ES256'],
      issuer: 'https://agent.example',
      audience: 'https://client.example/notifications',
      requiredClaims: ['exp'],
      maxTokenAge: '5m',
      clockTolerance: 60,
    }),
  // It reads base64url that is not canonical.
  stricter: ['a longer signature', 'another character of the signature'],
};

const SET_SECRET = Buffer.from('a-secret-of-32-characters-or-more');

ORACLES['jose, for security event tokens'] = {
  secret: SET_SECRET.toString(),
  other: 'another-secret-of-32-characters-or-more',
  create: (secret) =>
    securityEvents({ issuer: 'https://idp.example', audience: 'https://shop.example', secret }),
  event: 'session-revoked',
  header: 'token',
  isBody: true,
  async accepts(sent) {
    const { payload } = await jwtVerify(sent.headers['token']!, SET_SECRET, {
      algorithms: ['HS256'],
      typ: 'secevent+jwt',
      issuer: 'https://idp.example',
      audience: 'https://shop.example',
      requiredClaims: ['jti', 'events'],
      maxTokenAge: '7d',
      clockTolerance: 60,
    });
    if (payload.exp !== undefined) throw new Error('a token of an event has no exp');
  },
  // It reads base64url that is not canonical.
  stricter: ['a longer signature', 'another character of the signature'],
};

type Change = (sent: Sent, dice: Dice, context: { oracle: Oracle; forged: Sent }) => void;

const edit =
  (pattern: RegExp, by: (part: string, dice: Dice) => string): Change =>
  (sent, dice, { oracle: { header } }) => {
    sent.headers[header] = sent.headers[header]!.replace(pattern, (part) => by(part, dice));
  };
const last = /[^=,. ]+=*$/;

/** What happens to a signed request on its way. */
const CHANGES: Record<string, Change> = {
  nothing: () => undefined,
  'another unsigned header': (sent) => void (sent.headers['x-request-id'] = 'x'),
  'a byte of the body': (sent, dice) => {
    sent.body[dice.below(sent.body.length)]! ^= 1 << dice.below(7);
  },
  'a shorter body': (sent, dice) => {
    sent.body = sent.body.subarray(0, dice.below(sent.body.length));
  },
  'a longer body': (sent) => void (sent.body = Buffer.concat([sent.body, Buffer.from('\n')])),
  'another character of the signature': edit(last, (part, dice) => {
    const at = dice.below(part.length);
    return part.slice(0, at) + dice.one('0aAfFzZ+/=-'.split('')) + part.slice(at + 1);
  }),
  'a shorter signature': edit(last, (part, dice) => part.slice(0, dice.below(part.length))),
  'a longer signature': edit(last, (part, dice) => part + dice.one(['0', '=', '==', 'AA'])),
  'upper case': edit(last, (part) => part.toUpperCase()),
  'other base64': edit(last, (part) => part.replaceAll('+', '-').replaceAll('/', '_')),
  'another version': edit(/v\d|sha256|eyJ/, (part) => `${part}9`),
  'no signature': (sent, _dice, { oracle }) => void delete sent.headers[oracle.header],
  'an empty signature': (sent, _dice, { oracle }) => void (sent.headers[oracle.header] = ''),
  'another secret': (sent, _dice, { forged }) => void Object.assign(sent, forged),
  'the signature of another request': (sent, _dice, { oracle, forged }) => {
    sent.headers[oracle.header] = forged.headers[oracle.header]!;
  },
  'a signature more, behind': (sent, _dice, { oracle, forged }) => {
    sent.headers[oracle.header] = joined(oracle, sent, forged);
  },
  'a signature more, in front': (sent, _dice, { oracle, forged }) => {
    sent.headers[oracle.header] = joined(oracle, forged, sent);
  },
  'another time': (sent, dice, { oracle }) => {
    changeTime(oracle, sent, (time) => time + dice.one([-1, 1, 60]));
  },
  'a fraction of a second': (sent, _dice, { oracle }) => {
    changeTime(oracle, sent, (time) => `${time}.5`);
  },
};

/** Signed in time, or too early or too late: never so close to the limit that the run itself decides. */
const TIMES = { 'an old time': [-900, -500], 'a future time': [500, 900], now: [-150, 0, 30] };

function joined({ header }: Oracle, one: Sent, other: Sent): string {
  const [first, second] = [one.headers[header]!, other.headers[header]!];
  if (header === 'stripe-signature') return `${first},${second.slice(second.indexOf('v1='))}`;
  return header.endsWith('k-signature') || header === 'svix-signature'
    ? `${first} ${second}`
    : `${first},${second}`;
}

function changeTime({ header }: Oracle, sent: Sent, to: (time: number) => unknown): void {
  for (const name of Object.keys(sent.headers)) {
    const isTime = name === header || name.endsWith('timestamp');
    if (!isTime) continue;
    sent.headers[name] = sent.headers[name]!.replace(/\b(?:t=)?(\d{10})\b/, (all, time: string) =>
      all.replace(time, String(to(Number(time)))),
    );
  }
}

/** A body with the parts that trip JSON and text up. */
function randomData(dice: Dice): Record<string, unknown> {
  const value = (): unknown =>
    dice.one<() => unknown>([
      () => dice.below(1_000_000),
      () => dice.one(['', 'é', '日本', '\u0000', '\u2028', '"\\', '🎉', ' ']),
      () => [dice.below(9), null, true],
      () => ({ deep: { er: dice.below(9) } }),
    ])();
  const count = dice.below(6);
  const entries = Array.from({ length: count }, (_, index) => [`m${index}`, value()] as const);
  return { ...Object.fromEntries(entries), data: { n: dice.below(1e9) } };
}

const rules = {
  tokens: createTokenVerifier({
    issuers: [{ issuer: 'https://unused.example', secret: 'x'.repeat(32) }],
    now: () => Date.now(),
  }),
  requireHash: true,
  maxBodyBytes: 1_000_000,
  maxJsonMembers: 1_000,
};

/** Whether the signature is accepted, whatever the body holds. */
async function accepts(sender: WebhookSender, sent: Sent, { isBody }: Oracle): Promise<boolean> {
  const { token, ...headers } = sent.headers;
  const body = isBody === true ? Buffer.from(token ?? '') : sent.body;
  const get = (name: string): string | undefined => headers[name];
  const all = (name: string): string[] => [headers[name] ?? []].flat();
  try {
    const incoming = {
      method: 'POST',
      headers: { get, all },
      body: { kind: 'bytes', bytes: body },
    };
    await sender.verify(incoming as Parameters<WebhookSender['verify']>[0], rules);
    return true;
  } catch (error) {
    const { code } = error as { code?: string };
    return sender.isAuthenticated(error) && code === 'invalid_payload';
  }
}

async function sdkAccepts({ accepts: verify }: Oracle, sent: Sent): Promise<boolean> {
  try {
    await verify(sent);
    return true;
  } catch (error) {
    // The body is parsed after the signature is verified.
    return error instanceof SyntaxError;
  }
}

function copyOf({ headers, body }: SignedTestMessage, { header, isBody }: Oracle): Sent {
  if (isBody === true) {
    return {
      headers: { ...headers, [header]: String(body) },
      body: Buffer.from('-'),
    };
  }
  const own = header.startsWith('svix')
    ? Object.entries(headers).map(([name, value]) => [name.replace('webhook-', 'svix-'), value])
    : Object.entries(headers);
  return { headers: Object.fromEntries(own) as Sent['headers'], body: Buffer.from(body) };
}

describe.each(Object.entries(ORACLES))('%s', (_, oracle) => {
  it(`decides ${REQUESTS} requests as this library does, or is less strict where the guide says so`, async () => {
    const dice = new Dice(SEED);
    const sender = oracle.create(oracle.secret);
    const forger = oracle.create(oracle.other);
    const counts = { accepted: 0, refused: 0, stricter: 0 };
    const differences: string[] = [];
    for (let n = 0; n < REQUESTS; n++) {
      const time = dice.one(['now', 'now', 'now', 'an old time', 'a future time'] as const);
      const now = Date.now() + dice.one(TIMES[time]) * 1_000;
      const message = { event: oracle.event, data: randomData(dice), now };
      const sent = copyOf(await sender.sign(message), oracle);
      const forged = copyOf(await forger.sign({ ...message, data: randomData(dice) }), oracle);
      const change = dice.below(3) === 0 ? 'nothing' : dice.one(Object.keys(CHANGES));
      CHANGES[change]!(sent, dice, { oracle, forged });

      const [own, theirs] = [await accepts(sender, sent, oracle), await sdkAccepts(oracle, sent)];

      if (own === theirs) counts[own ? 'accepted' : 'refused']++;
      else if (!own && [time, change].some((one) => oracle.stricter.includes(one))) {
        counts.stricter++;
      } else differences.push(`${n}: ${change}, ${time}: ${own ? 'only here' : 'only there'}`);
    }

    expect(differences.slice(0, 10)).toEqual([]);
    // Both outcomes are reached often.
    expect(counts.accepted).toBeGreaterThan(REQUESTS / 5);
    expect(counts.refused).toBeGreaterThan(REQUESTS / 5);
    expect(counts.stricter > 0).toBe(oracle.stricter.length > 0);
  });
});
