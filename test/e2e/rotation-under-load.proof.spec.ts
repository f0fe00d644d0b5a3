import { randomBytes } from 'node:crypto';
import { HttpModule, HttpService } from '@nestjs/axios';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { TestClock, signWebhook } from 'nestjs-webhook-token/testing';
import {
  InProcessQueue,
  KeyProvider,
  OnWebhookEvent,
  WebhookPublisher,
  type WebhookIssuer,
  type WebhookKey,
} from 'nestjs-webhook-token';
import { createFastify } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { ISSUER, startApp, type StartedApp } from '../fixtures/receiver-app.js';

const DELIVERIES = 5_000;
const IN_FLIGHT = 300;

/** Keys in an application's database. */
class StoredKeys extends KeyProvider<readonly WebhookKey[]> {
  keys: readonly WebhookKey[] = [];

  override load(): readonly WebhookKey[] {
    return this.keys;
  }

  async replace(...keys: readonly WebhookKey[]): Promise<void> {
    this.keys = keys;
    await this.refresh();
  }
}

class StoredIssuers extends KeyProvider<readonly WebhookIssuer[]> {
  keys: readonly WebhookKey[] = [];

  override load(): readonly WebhookIssuer[] {
    return [{ issuer: ISSUER, keys: this.keys }];
  }

  async replace(...keys: readonly WebhookKey[]): Promise<void> {
    this.keys = keys;
    await this.refresh();
  }
}

const keyNamed = (kid: string): WebhookKey => ({ kid, key: randomBytes(32) });
const kidOf = (token: string): string =>
  (JSON.parse(Buffer.from(token.split('.')[0]!, 'base64url').toString()) as { kid: string }).kid;

describe('keys that rotate under load', () => {
  const [first, second, third, fourth] = ['k1', 'k2', 'k3', 'k4'].map(keyNamed) as [
    WebhookKey,
    WebhookKey,
    WebhookKey,
    WebhookKey,
  ];
  const clock = new TestClock();
  const trusted = new StoredIssuers();
  const signing = new StoredKeys();
  /** Number of handler runs by event. */
  const handled = new Map<number, number>();
  /** Every answer, with the key of its request and whether that was sent after the revocation of the third key. */
  const answers: { kid: string; status: number; afterRevocation: boolean }[] = [];
  let revoked = false;
  /** Number of requests without an answer. */
  let inFlight = 0;
  let receiver: StartedApp;
  let sender: StartedApp;

  beforeAll(async () => {
    @Injectable()
    class Orders {
      @OnWebhookEvent('order.created')
      onCreated({ number }: { number: number }): void {
        handled.set(number, (handled.get(number) ?? 0) + 1);
      }
    }
    trusted.keys = [first];
    signing.keys = [first];
    receiver = await startApp(createFastify(), {
      options: { clock, receiver: { path: 'webhooks', issuers: trusted } },
      providers: [Orders],
    });
    sender = await startApp(createFastify(), {
      options: {
        // With its own Axios instance: the plain HttpModule uses that of the whole process.
        httpModule: HttpModule.register({}),
        clock,
        publisher: {
          issuer: ISSUER,
          keys: signing,
          endpoints: [{ id: 'receiver', url: `${receiver.origin}/webhooks` }],
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
          queue: new InProcessQueue({ clock, concurrencyPerDestination: 50 }),
        },
      },
    });
    const { interceptors } = sender.app.get(HttpService, { strict: false }).axiosRef;
    interceptors.request.use((request) => {
      inFlight++;
      return Object.assign(request, { afterRevocation: revoked });
    });
    interceptors.response.use(
      (response) => {
        inFlight--;
        const { headers, afterRevocation } = response.config as typeof response.config & {
          afterRevocation: boolean;
        };
        const kid = kidOf(String(headers.get('authorization')).slice('Bearer '.length));
        answers.push({ kid, status: response.status, afterRevocation });
        return response;
      },
      (error: unknown) => {
        inFlight--;
        throw error;
      },
    );
  });
  afterAll(async () => {
    await sender.app.close();
    await receiver.app.close();
  });

  /** Publishes with some hundred deliveries in flight at any time, including when it returns. */
  async function publish(from: number, to: number): Promise<void> {
    const publisher = sender.app.get(WebhookPublisher);
    for (let number = from; number < to; number++) {
      await publisher.publish('order.created', { number });
      await untilHandled(number - IN_FLIGHT);
    }
  }

  /** Publishes events that are rejected for now, and waits for the first rejection. */
  async function publishUntilRejected(from: number, to: number): Promise<void> {
    const publisher = sender.app.get(WebhookPublisher);
    for (let number = from; number < to; number++) {
      await publisher.publish('order.created', { number });
    }
    const isRejected = (): boolean => answers.some(({ status }) => status === 401);
    for (let turn = 0; turn < 5_000 && !isRejected(); turn++) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Waits for requests; advances the clock only while none is in flight, since it would time out. */
  async function untilHandled(count: number): Promise<void> {
    for (let idle = 0; handled.size < count && idle < 500; idle++) {
      await new Promise((resolve) => setImmediate(resolve));
      if (inFlight > 0) idle = 0;
      else if (idle % 5 === 4) await clock.advance(60_000);
    }
  }

  it(`loses none of ${DELIVERIES} deliveries and accepts nothing with a revoked key`, async () => {
    // Two rotations with overlap: the receiver adds the new key first and removes the old one last.
    await publish(0, 1_000);
    await trusted.replace(first, second);
    await signing.replace(first, second);
    await publish(1_000, 2_000);
    await trusted.replace(second, third);
    await signing.replace(second, third);
    await publish(2_000, 4_000);
    // The third key has leaked. Requests that it signed are in flight, and more will be sent.
    await trusted.replace(second, fourth);
    revoked = true;
    await publishUntilRejected(4_000, 4_200);
    await signing.replace(fourth);
    await publish(4_200, DELIVERIES);
    await untilHandled(DELIVERIES);

    expect(handled.size).toBe(DELIVERIES);
    expect([...handled.values()].filter((times) => times !== 1)).toEqual([]);
    const accepted = (kid: string): number =>
      answers.filter((answer) => answer.kid === kid && answer.status === 204).length;
    for (const { kid } of [first, second, third, fourth]) expect(accepted(kid!)).toBeGreaterThan(0);
    const late = answers.filter(({ kid, afterRevocation }) => kid === 'k3' && afterRevocation);
    expect(late.length).toBeGreaterThan(0);
    expect(new Set(late.map(({ status }) => status))).toEqual(new Set([401]));
  });

  it('rejects a token of the revoked key with its error code', async () => {
    const options = { issuer: ISSUER, key: third, clock };
    const { token } = await signWebhook('order.created', { number: -1 }, options);
    const answer = await send(receiver.origin, { method: 'HEAD', token });

    expect(answer.status).toBe(401);
    expect(answer.headers['webhook-error']).toBe('unknown_key');
    expect(handled.has(-1)).toBe(false);
  });
});
