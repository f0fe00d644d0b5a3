import { randomBytes } from 'node:crypto';
import { HttpModule, HttpService } from '@nestjs/axios';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import {
  InProcessQueue,
  KeyProvider,
  OnWebhookEvent,
  WebhookPublisher,
  type WebhookIssuer,
  type WebhookKey,
} from '../../lib/index.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { signWebhook } from '../../lib/testing/sign-webhook.js';
import { adapters } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { ISSUER, startApp, type StartedApp } from '../fixtures/receiver-app.js';

const DELIVERIES = 5_000;
const IN_FLIGHT = 300;

/** Keys as an application keeps them in its database. */
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

describe.each(adapters)('keys that rotate under load, on %s', (_, createAdapter) => {
  const [first, second, third, fourth] = ['k1', 'k2', 'k3', 'k4'].map(keyNamed) as [
    WebhookKey,
    WebhookKey,
    WebhookKey,
    WebhookKey,
  ];
  const clock = new TestClock();
  const trusted = new StoredIssuers();
  const signing = new StoredKeys();
  /** How often each event was handled. */
  const handled = new Map<number, number>();
  /** Every answer: by which key, and whether the request left after the third key was revoked. */
  const answers: { kid: string; status: number; afterRevocation: boolean }[] = [];
  let revoked = false;
  /** Requests that have no answer yet. */
  let travelling = 0;
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
    receiver = await startApp(createAdapter(), {
      options: { clock, receiver: { path: 'webhooks', issuers: trusted } },
      providers: [Orders],
    });
    sender = await startApp(createAdapter(), {
      options: {
        // An axios of its own: the plain module has the one of the whole process.
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
      travelling++;
      return Object.assign(request, { afterRevocation: revoked });
    });
    interceptors.response.use(
      (response) => {
        travelling--;
        const { headers, afterRevocation } = response.config as typeof response.config & {
          afterRevocation: boolean;
        };
        const kid = kidOf(String(headers.get('authorization')).slice('Bearer '.length));
        answers.push({ kid, status: response.status, afterRevocation });
        return response;
      },
      (error: unknown) => {
        travelling--;
        throw error;
      },
    );
  });
  afterAll(async () => {
    await sender.app.close();
    await receiver.app.close();
  });

  /** Publishes with some hundred deliveries under way at any time, also when it returns. */
  async function publish(from: number, to: number): Promise<void> {
    const publisher = sender.app.get(WebhookPublisher);
    for (let number = from; number < to; number++) {
      await publisher.publish('order.created', { number });
      await untilHandled(number - IN_FLIGHT);
    }
  }

  /** Publishes what will be refused for now, until the first refusals have come back. */
  async function publishUnheard(from: number, to: number): Promise<void> {
    const publisher = sender.app.get(WebhookPublisher);
    for (let number = from; number < to; number++) {
      await publisher.publish('order.created', { number });
    }
    const refused = (): boolean => answers.some(({ status }) => status === 401);
    for (let turn = 0; turn < 5_000 && !refused(); turn++) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Lets requests travel; and time pass, once none travels any more: they would run out of it. */
  async function untilHandled(count: number): Promise<void> {
    for (let idle = 0; handled.size < count && idle < 500; idle++) {
      await new Promise((resolve) => setImmediate(resolve));
      if (travelling > 0) idle = 0;
      else if (idle % 5 === 4) await clock.advance(60_000);
    }
  }

  it(`loses none of ${DELIVERIES} deliveries and accepts nothing by a revoked key`, async () => {
    // Two rotations by overlap: the receiver learns the new key first, and forgets the old one last.
    await publish(0, 1_000);
    await trusted.replace(first, second);
    await signing.replace(first, second);
    await publish(1_000, 2_000);
    await trusted.replace(second, third);
    await signing.replace(second, third);
    await publish(2_000, 4_000);
    // The third has leaked. Requests it has signed are under way, and more are about to leave.
    await trusted.replace(second, fourth);
    revoked = true;
    await publishUnheard(4_000, 4_200);
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
  }, 120_000);

  it('refuses what the revoked key signs, by its code', async () => {
    const options = { issuer: ISSUER, key: third, clock };
    const { token } = await signWebhook('order.created', { number: -1 }, options);
    const answer = await send(receiver.origin, { method: 'HEAD', token });

    expect(answer.status).toBe(401);
    expect(answer.headers['webhook-error']).toBe('unknown_key');
    expect(handled.has(-1)).toBe(false);
  });
});
