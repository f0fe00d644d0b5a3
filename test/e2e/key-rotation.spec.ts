import { generateKeyPairSync } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  KeyProvider,
  OnWebhookEvent,
  WebhookEvent,
  WebhookJwks,
  WebhookPublisher,
  type SigningKeyInput,
  type WebhookKey,
  type WebhookPublisherOptions,
} from 'nestjs-webhook-token';
import { createExpress } from '../fixtures/adapters.js';
import { ISSUER, receiverOptions, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { RemoteSigner } from '../fixtures/remote-signer.js';

const MINUTE = 60_000;

let seen: WebhookEvent[] = [];

@Injectable()
class Everything {
  @OnWebhookEvent('**')
  on(_: unknown, event: WebhookEvent): void {
    seen.push(event);
  }
}

const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });

describe('from a publisher that rotates keys to a receiver', () => {
  let clock: TestClock;
  const running: StartedApp[] = [];
  const signers: RemoteSigner[] = [];

  beforeEach(() => {
    seen = [];
    clock = new TestClock();
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map(({ app }) => app.close()));
    await Promise.all(signers.splice(0).map((signer) => signer.stop()));
  });

  /** Starts a receiver that trusts some keys, and a publisher that signs with others. */
  async function start(
    trusted: readonly WebhookKey[],
    keys: WebhookPublisherOptions['keys'],
  ): Promise<StartedApp> {
    const receiver = await startApp(createExpress(), {
      options: {
        ...receiverOptions({ issuers: [{ issuer: ISSUER, keys: trusted }] }),
        clock,
      },
      providers: [Everything],
    });
    const sender = await startApp(createExpress(), {
      options: {
        clock,
        publisher: {
          issuer: ISSUER,
          keys,
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          endpoints: [{ id: 'receiver', url: `${receiver.origin}/webhooks` }],
        },
      },
    });
    running.push(sender, receiver);
    return sender;
  }

  async function remote(
    alg: 'ES256' | 'RS256',
    ...options: Parameters<typeof RemoteSigner.start> extends [unknown, ...infer Rest]
      ? Rest
      : never
  ): Promise<RemoteSigner> {
    const signer = await RemoteSigner.start(alg, ...options);
    signers.push(signer);
    return signer;
  }

  const trust = ({ kid, alg, publicKey }: RemoteSigner): WebhookKey => ({
    kid,
    alg,
    key: publicKey,
  });

  it('every event arrives across rotations from a secret to a key pair to two key services', async () => {
    const at = (minutes: number): Date => new Date(clock.now() + minutes * MINUTE);
    const ecdsa = await remote('ES256', { kid: 'kms-ec', notBefore: at(2) });
    const rsa = await remote('RS256', { kid: 'kms-rsa', notBefore: at(3) });
    const secret = { kid: 'secret', key: 'a shared secret that both of them have' };
    const sender = await start(
      [secret, { kid: 'pair', alg: 'ES256', key: pair.publicKey }, trust(ecdsa), trust(rsa)],
      [
        { ...secret, notAfter: at(2) },
        { kid: 'pair', alg: 'ES256', key: pair.privateKey, notBefore: at(1), notAfter: at(3) },
        ecdsa,
        rsa,
      ],
    );
    const publisher = sender.app.get(WebhookPublisher);

    for (let minute = 0; minute <= 4; minute++) {
      const { status } = await publisher.send('receiver', 'order.created', { minute });
      expect(status).toBe('delivered');
      await clock.advance(MINUTE);
    }

    expect(seen.map(({ data }) => (data as { minute: number }).minute)).toEqual([0, 1, 2, 3, 4]);
    expect(ecdsa.asked).toHaveLength(1);
    expect(rsa.asked).toHaveLength(2);
  });

  it('a receiver with the public keys accepts events after a change without restart', async () => {
    class Provider extends KeyProvider<readonly SigningKeyInput[]> {
      keys: readonly SigningKeyInput[] = [{ kid: 'old', key: 'a shared secret both of them have' }];
      override load(): readonly SigningKeyInput[] {
        return this.keys;
      }
    }
    const provider = new Provider();
    const sender = await start(
      [
        { kid: 'old', key: 'a shared secret both of them have' },
        { kid: 'new', alg: 'ES256', key: pair.publicKey },
      ],
      provider,
    );
    const publisher = sender.app.get(WebhookPublisher);
    await publisher.send('receiver', 'order.created', { id: 1 });
    provider.keys = [{ kid: 'new', alg: 'ES256', key: pair.privateKey }];
    await provider.refresh();
    const { token } = await publisher.sign('receiver', 'order.created', { id: 2 });
    await publisher.send('receiver', 'order.created', { id: 2 });

    const header = JSON.parse(Buffer.from(token.split('.')[0]!, 'base64url').toString());
    expect(header).toEqual({ alg: 'ES256', typ: 'JWT', kid: 'new' });
    expect(seen.map(({ data }) => data)).toEqual([{ id: 1 }, { id: 2 }]);
    expect((await sender.app.get(WebhookJwks).document()).keys).toMatchObject([{ kid: 'new' }]);
  });

  it('an event that was signed with an untrusted key is retried with a trusted key', async () => {
    class Provider extends KeyProvider<readonly SigningKeyInput[]> {
      keys = [{ kid: 'lost', key: 'a shared secret that is no longer trusted' }];
      override load(): readonly SigningKeyInput[] {
        return this.keys;
      }
    }
    const provider = new Provider();
    const trusted = { kid: 'new', key: 'a shared secret both of them have' };
    const sender = await start([trusted], provider);
    const publisher = sender.app.get(WebhookPublisher);
    const result = await publisher.send('receiver', 'order.created', { id: 1 });
    provider.keys = [trusted];
    await provider.refresh();
    await clock.advance(10_000);
    while (seen.length === 0) await new Promise((turn) => setImmediate(turn));

    expect(result).toMatchObject({ status: 'scheduled', failureReason: 'http_401' });
    expect(seen.map(({ id }) => id)).toEqual([result.id]);
  });
});
