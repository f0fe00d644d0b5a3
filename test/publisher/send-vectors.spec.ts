import { Test, type TestingModule } from '@nestjs/testing';
import { describe, expect, it } from '@jest/globals';
import { compactVerify, decodeProtectedHeader, importJWK, type JWK } from 'jose';
import type { WebhookProfile } from 'nestjs-webhook-token/token';
import { signWebhook, TestClock } from 'nestjs-webhook-token/testing';
import { InProcessQueue, WebhookModule } from 'nestjs-webhook-token';
import type { SignedWebhookRequest } from '../../lib/publisher/publish-options.js';
import { WebhookPublisher } from '../../lib/publisher/webhook.publisher.js';
import { readSendVectors, SEND_GROUPS, type SendVector } from '../token/vector-file.js';

const VECTORS = SEND_GROUPS.flatMap((group) => readSendVectors(group));

const URL = 'https://receiver.example/hooks';

describe.each([...new Set(VECTORS.map(({ profile }) => profile))])(
  'vectors: sending %s',
  (profile) => {
    const vectors = VECTORS.filter((vector) => vector.profile === profile);

    it.each(vectors.map((vector) => [vector.name, vector] as const))('%s', async (_, vector) => {
      const request = await publisherSigns(vector);
      const { claims, header } = await read(request.token, vector);
      const { expect: wanted } = vector;

      expect(header).toEqual(wanted.header);
      // The publisher generates its own jti.
      expect({ ...claims, jti: wanted.claims['jti'] }).toEqual(wanted.claims);
      expect(claims['jti']).toEqual(expect.stringMatching(/^.{1,255}$/));
      expect(request.method).toBe(wanted.method);
      expect(lowerCase(request.headers)).toMatchObject(wanted.headers);
      expect(request.headers['Authorization']).toBe(`Bearer ${request.token}`);
      expect(request.body?.toString('base64')).toBe(wanted.body);
    });
  },
);

describe('vectors: sending webhook-token by signWebhook', () => {
  const vectors = VECTORS.filter(({ profile }) => profile === 'webhook-token');

  it.each(vectors.map((vector) => [vector.name, vector] as const))('%s', async (_, vector) => {
    const { sender, event, expect: wanted } = vector;
    const request = await signWebhook(event.name, dataOf(vector), {
      issuer: sender.issuer,
      key: keyOf(vector),
      lifetime: sender.tokenLifetime,
      hash: sender.hash,
      method: sender.method,
      contentType: event.contentType,
      id: event.id,
      jti: event.jti,
      audience: event.audience,
      subject: event.subject,
      now: () => vector.now * 1_000,
    });

    expect((await read(request.token, vector)).claims).toEqual(wanted.claims);
    expect(request.method).toBe(wanted.method);
    expect(request.body?.toString('base64')).toBe(wanted.body);
  });
});

async function publisherSigns(vector: SendVector): Promise<SignedWebhookRequest> {
  const { sender, event, now } = vector;
  const wire = { profile: vector.profile as WebhookProfile };
  const endpoint = { id: 'receiver', url: URL, events: ['**'], hash: sender.hash, ...wire };
  const options = {
    clock: new TestClock(now * 1_000),
    publisher: {
      issuer: sender.issuer,
      key: keyOf(vector),
      tokenLifetime: sender.tokenLifetime,
      method: sender.method,
      endpoints: [endpoint],
      queue: new InProcessQueue(),
    },
  };
  const module: TestingModule = await Test.createTestingModule({
    imports: [WebhookModule.forRoot(options)],
  }).compile();
  try {
    return await module.get(WebhookPublisher).sign('receiver', event.name, dataOf(vector), {
      id: event.id,
      contentType: event.contentType,
      audience: event.audience,
      subject: event.subject,
      ...wire,
    });
  } finally {
    await module.close();
  }
}

function dataOf({ event }: SendVector): unknown {
  return event.bytes === undefined ? event.data : Buffer.from(event.bytes, 'base64');
}

function keyOf({ sender }: SendVector) {
  const { kid, alg, secret, privateJwk } = sender.key;
  return { kid, alg, key: secret ?? privateJwk! };
}

/** Reads a token once its signature has held, in an implementation that is not ours. */
async function read(
  token: string,
  { sender }: SendVector,
): Promise<{ header: object; claims: Record<string, unknown> }> {
  const { alg, secret, privateJwk } = sender.key;
  const { d: _, ...publicJwk } = (privateJwk ?? {}) as JWK & { d?: string };
  const rsa = ['p', 'q', 'dp', 'dq', 'qi'];
  const half = Object.fromEntries(
    Object.entries(publicJwk).filter(([name]) => !rsa.includes(name)),
  );
  const key =
    secret === undefined ? await importJWK(half as JWK, alg) : new TextEncoder().encode(secret);
  const { payload } = await compactVerify(token, key, { algorithms: [alg] });
  const claims = JSON.parse(new TextDecoder().decode(payload)) as Record<string, unknown>;
  return { header: decodeProtectedHeader(token), claims };
}

function lowerCase(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
