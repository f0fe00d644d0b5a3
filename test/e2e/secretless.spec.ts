import { generateKeyPairSync } from 'node:crypto';
import { afterEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { SignatureAlgorithm } from 'nestjs-webhook-token/token';
import {
  KeyProvider,
  OnWebhookEvent,
  WebhookPublisher,
  type SigningKeyInput,
  type WebhookEvent,
} from 'nestjs-webhook-token';
import { createFastify } from '../fixtures/adapters.js';
import { ISSUER, receiverOptions, startApp, type StartedApp } from '../fixtures/receiver-app.js';

/** For both algorithms of RSA: it takes long to generate. */
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const PAIRS: Partial<Record<SignatureAlgorithm, () => ReturnType<typeof generateKeyPairSync>>> = {
  RS256: () => rsa,
  PS256: () => rsa,
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ES384: () => generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
};

let events: WebhookEvent[] = [];

@Injectable()
class Everything {
  @OnWebhookEvent('**')
  on(_: unknown, event: WebhookEvent): void {
    events.push(event);
  }
}

class StoredKeys extends KeyProvider<readonly SigningKeyInput[]> {
  constructor(public keys: readonly SigningKeyInput[]) {
    super();
  }

  override load(): readonly SigningKeyInput[] {
    return this.keys;
  }
}

function keyOf(alg: SignatureAlgorithm, kid: string): SigningKeyInput {
  return { kid, alg, key: PAIRS[alg]!().privateKey };
}

describe('a sender and a receiver that share no secret', () => {
  const clock = new TestClock();
  const running: StartedApp[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map(({ app }) => app.close()));
    events = [];
  });

  /** Starts a sender that serves its public keys, and a receiver that knows only their URL. */
  async function start(keys: StoredKeys): Promise<{ send(id: number): Promise<unknown> }> {
    const local = { allowHttp: true, allowedAddresses: ['127.0.0.1'] };
    const sender = await startApp(createFastify(), {
      options: { clock, publisher: { issuer: ISSUER, keys, jwks: true, ...local } },
    });
    const jwksUri = `${sender.origin}/.well-known/webhook-keys`;
    const receiver = await startApp(createFastify(), {
      options: {
        ...receiverOptions({ issuers: [{ issuer: ISSUER, jwksUri }], jwksFetch: local }),
        clock,
      },
      providers: [Everything],
    });
    running.push(receiver, sender);
    const publisher = sender.app.get(WebhookPublisher);
    return { send: (id) => publisher.send(`${receiver.origin}/webhooks`, 'order.created', { id }) };
  }

  it.each(Object.keys(PAIRS) as SignatureAlgorithm[])(
    'exchange events signed with %s',
    async (alg) => {
      const { send } = await start(new StoredKeys([keyOf(alg, 'k1')]));

      expect(await send(1)).toMatchObject({ status: 'delivered', receipt: { alg, kid: 'k1' } });
      expect(events).toMatchObject([{ issuer: ISSUER, data: { id: 1 } }]);
    },
  );

  it('continue when the sender rotates its key, and a removed key is no longer accepted', async () => {
    const [first, second] = [keyOf('ES256', 'k1'), keyOf('EdDSA', 'k2')];
    const keys = new StoredKeys([first]);
    const { send } = await start(keys);
    await send(1);

    keys.keys = [first, second];
    await keys.refresh();
    // The receiver has just fetched the keys, and fetches again only after its cooldown.
    await clock.advance(30_000);
    expect(await send(2)).toMatchObject({ status: 'delivered', receipt: { kid: 'k2' } });

    keys.keys = [second];
    await keys.refresh();
    await clock.advance(20 * 60_000 + 1_000);
    await send(3);
    keys.keys = [first];
    await keys.refresh();
    // Within its cooldown, the receiver does not fetch the keys, and the old key has been dropped.
    expect(await send(4)).toMatchObject({ status: 'scheduled', statusCode: 401 });
    expect(events.map(({ data }) => (data as { id: number }).id)).toEqual([1, 2, 3]);
  });
});
