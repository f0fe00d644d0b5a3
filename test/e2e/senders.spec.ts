import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable } from '@nestjs/common';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookInbox,
  WebhookRoute,
  type WebhookEvent,
} from 'nestjs-webhook-token';
import { WebhookConsoleModule } from 'nestjs-webhook-token/console';
import { WebhookTelemetryModule } from 'nestjs-webhook-token/opentelemetry';
import type { ReplayReservation } from 'nestjs-webhook-token/ports';
import {
  eventGrid,
  github,
  graph,
  okta,
  qstash,
  securityEvents,
  slack,
  standardWebhooks,
  stripe,
  type WebhookSender,
  zoom,
} from 'nestjs-webhook-token/senders';
import { deliverWebhook, expectIdempotent, flushDeliveries } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { send, type Sending } from '../fixtures/http-client.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';
import { TelemetryRecorder } from '../fixtures/telemetry-recorder.js';

const SECRET = 'a-secret-of-32-characters-or-more';

/** One sender of each kind of signature, and an event of it. */
const SENDERS: readonly [name: string, sender: WebhookSender, event: string, data: object][] = [
  [
    'standard-webhooks',
    standardWebhooks({ secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' }),
    'user.created',
    { data: { id: 'u1' } },
  ],
  ['stripe', stripe({ secret: SECRET }), 'invoice.paid', { data: { object: {} } }],
  ['github', github({ secret: SECRET }), 'issues.opened', { issue: { id: 1 } }],
  ['qstash', qstash({ secret: SECRET, url: 'https://shop.example/q' }), 'message', { id: 1 }],
  [
    'security-events',
    securityEvents({
      issuer: 'https://idp.example',
      audience: 'https://shop.example',
      secret: SECRET,
    }),
    'session-revoked',
    { sub_id: { format: 'opaque', id: 's1' } },
  ],
  ['okta', okta({ value: SECRET }), 'user.session.start', { severity: 'INFO' }],
];

class TransactionalStore extends ScriptedReplayStore {
  readonly transactions: unknown[] = [];

  override async commitWith(tx: unknown, reservation: ReplayReservation): Promise<boolean> {
    this.transactions.push(tx);
    return super.commitWith(tx, reservation);
  }
}

@Injectable()
class Handlers {
  readonly seen: WebhookEvent[] = [];

  @OnWebhookEvent('**')
  async on(_data: unknown, event: WebhookEvent): Promise<void> {
    if (event.receiver.endsWith('-tx')) await event.commit('a transaction');
    this.seen.push(event);
  }
}

describe.each(adapters)('a receiver of another sender on %s', (_, createAdapter) => {
  let recorder: TelemetryRecorder;
  const store = new TransactionalStore();
  let receiver: StartedApp;
  let handlers: Handlers;
  beforeAll(async () => {
    recorder = new TelemetryRecorder();
    receiver = await startApp(createAdapter(), {
      options: {
        receiver: SENDERS.flatMap(([name, sender]) => [
          { name, path: name, sender },
          { name: `${name}-tx`, path: `${name}-tx`, sender, replay: { store } },
          {
            name: `${name}-queued`,
            path: `${name}-queued`,
            sender,
            acknowledge: 'queued' as const,
            queue: new InProcessQueue(),
          },
        ]),
      },
      imports: [
        WebhookTelemetryModule.forRoot(),
        WebhookConsoleModule.forRoot({ allowUnguarded: true }),
      ],
      providers: [Handlers],
    });
    handlers = receiver.app.get(Handlers);
  });
  beforeEach(() => {
    handlers.seen.length = 0;
    store.transactions.length = 0;
    recorder.reset();
  });
  afterAll(async () => {
    await receiver.app.close();
    recorder.close();
  });

  describe.each(SENDERS)('%s', (name, sender, event, data) => {
    const deliver = (to: string, id?: string) =>
      deliverWebhook(receiver.app, event, data as never, { receiver: to, sender, id });

    it('commits an event in the transaction of its handler', async () => {
      const answer = await deliver(`${name}-tx`);

      expect(answer.outcome).toBe('handled');
      expect(store.transactions).toEqual(['a transaction']);
      expect(handlers.seen).toMatchObject([{ event, receiver: `${name}-tx` }]);
    });

    it('handles an event from a queue', async () => {
      const answer = await deliver(`${name}-queued`);
      await flushDeliveries(receiver.app);

      expect(answer.status).toBe({ 'security-events': 202, 'standard-webhooks': 202 }[name] ?? 200);
      expect(handlers.seen).toMatchObject([{ event, data }]);
    });

    it('shows an event in the inbox and in the console', async () => {
      await deliver(name);
      const { entries } = await receiver.app.get(WebhookInbox).list({ receiver: name });
      const path = `/webhooks/console/api/inbox?receiver=${name}`;
      const { json } = await send(receiver.origin, { method: 'GET', path });

      expect(entries[0]).toMatchObject({ outcome: 'handled', event, receiver: name });
      expect((json as { items: object[] }).items[0]).toMatchObject({ event, receiver: name });
    });

    it('traces a request and its handler', async () => {
      await deliver(name);

      expect(recorder.spans.map((span) => span.name)).toContain(`process ${event}`);
    });

    it('can be checked for idempotent handlers', async () => {
      await expectIdempotent(receiver.app, event, data as never, {
        receiver: name,
        sender,
        observe: () => handlers.seen.length > 0,
      });
    });
  });
});

@Controller('hooks')
class TenantHooks {
  @WebhookRoute(':tenant')
  receive(): void {}
}

describe.each(adapters)('a route for another sender on %s', (_, createAdapter) => {
  it.each([
    ['a sender', {}],
    ['a sender and issuers', { issuers: [{ issuer: 'https://shop.example', secret: SECRET }] }],
  ])('asks for rawBody or a path, for a receiver with %s', async (_receiver, issuers) => {
    const sender = stripe({ secret: SECRET });
    const deliver = async (rawBody: boolean): Promise<unknown[]> => {
      const { app, logger } = await startApp(createAdapter(), {
        options: { receiver: { sender, ...issuers } },
        controllers: [TenantHooks],
        nest: { rawBody },
      });
      const sending = { sender, path: '/hooks/acme' };
      const { status } = await deliverWebhook(app, 'invoice.paid', { data: {} }, sending);
      await app.close();
      return [status, ...logger.at('error')];
    };

    expect(await deliver(false)).toEqual([
      500,
      expect.stringContaining(
        'create the application with rawBody: true, or give the receiver a path',
      ),
    ]);
    expect(await deliver(true)).toEqual([204]);
  });

  it('acknowledges a duplicate with the status that the sender expects', async () => {
    const sender = stripe({ secret: SECRET });
    const { app } = await startApp(createAdapter(), {
      options: { receiver: { sender } },
      controllers: [TenantHooks],
      nest: { rawBody: true },
    });
    const sending = { sender, path: '/hooks/acme', id: 'evt_1' };
    const deliver = async () => deliverWebhook(app, 'invoice.paid', { data: {} }, sending);
    const answers = [await deliver(), await deliver()];
    await app.close();

    expect(answers.map(({ status }) => status)).toEqual([204, 200]);
  });
});

/** Each sender's check of a receiver's URL; the target has the query. */
const CHECKS: Record<string, { sender: WebhookSender; check: () => Promise<Sending> | Sending }> = {
  slack: {
    sender: slack({ secret: SECRET }),
    check: async () =>
      CHECKS['slack']!.sender.sign({
        event: 'url_verification',
        data: { type: 'url_verification', challenge: '3eZbrw1aB' },
        now: Date.now(),
      }),
  },
  zoom: {
    sender: zoom({ secret: SECRET }),
    check: async () =>
      CHECKS['zoom']!.sender.sign({
        event: 'endpoint.url_validation',
        data: { payload: { plainToken: 'qgg8vlvZR' } },
        now: Date.now(),
      }),
  },
  okta: {
    sender: okta({ value: SECRET }),
    check: () => ({ method: 'GET', headers: { 'x-okta-verification-challenge': 'Zh9-a_1' } }),
  },
  graph: {
    sender: graph({ clientState: SECRET }),
    check: () => ({ path: '?validationToken=Validation%3A+5f-1' }),
  },
  'event-grid': {
    sender: eventGrid({ tenant: 't-1', audience: 'api://shop', secret: SECRET }),
    check: () => ({ method: 'OPTIONS', headers: { 'webhook-request-origin': 'grid.example' } }),
  },
};

@Controller('hooks')
class CheckedHooks {
  @WebhookRoute('slack', { receiver: 'slack' })
  slack(): void {}

  @WebhookRoute('zoom', { receiver: 'zoom' })
  zoom(): void {}

  @WebhookRoute('okta', { receiver: 'okta' })
  okta(): void {}

  @WebhookRoute('graph', { receiver: 'graph' })
  graph(): void {}

  @WebhookRoute('event-grid', { receiver: 'event-grid' })
  eventGrid(): void {}
}

describe.each(adapters)('the check of a URL on %s', (_, createAdapter) => {
  it.each(Object.entries(CHECKS))(
    'gets the answer that %s expects on a route too',
    async (name, { check }) => {
      const receiver = Object.entries(CHECKS).map(([one, { sender }]) => ({
        name: one,
        path: `mounted/${one}`,
        sender,
      }));
      const { app, origin } = await startApp(createAdapter(), {
        options: { receiver },
        controllers: [CheckedHooks],
        nest: { rawBody: true },
      });
      const sending = await check();
      const answerAt = async (path: string): Promise<unknown> => {
        const target = `/${path}/${name}${sending.path ?? ''}`;
        const { status, headers, text } = await send(origin, { ...sending, path: target });
        return {
          status,
          text,
          type: headers['content-type']?.replace(/;.*/, ''),
          cache: headers['cache-control'],
          origin: headers['webhook-allowed-origin'],
        };
      };
      const answers = [await answerAt('mounted'), await answerAt('hooks')];
      await app.close();

      expect(answers[0]).toMatchObject({ status: 200, cache: 'no-store' });
      expect(answers[1]).toEqual(answers[0]);
    },
  );
});
