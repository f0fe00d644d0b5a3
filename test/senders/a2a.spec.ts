import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { generateKeyPairSync } from 'node:crypto';
import { createServer, request as forward, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { createRemoteJWKSet, jwtVerify, type JWTPayload } from 'jose';
import { InProcessQueue, WebhookPublisher } from '../../lib/index.js';
import { SystemClock, type WebhookClock } from '../../lib/ports/index.js';
import { a2a } from '../../lib/senders/index.js';
import { flushDeliveries, TestClock } from 'nestjs-webhook-token/testing';
import { adapters } from '../fixtures/adapters.js';
import { ReceivedEvents } from '../fixtures/received-events.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';

const AGENT = 'https://agent.example';
const AUDIENCE = 'https://client.example/notifications';
const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });

/** What the agent pushes: a `StreamResponse`, with one member. */
const update = {
  statusUpdate: { taskId: 't-1', contextId: 'c-1', status: { state: 'TASK_STATE_COMPLETED' } },
};

async function startBoth(
  createAdapter: () => AbstractHttpAdapter,
  clock: WebhookClock = new SystemClock(),
): Promise<[agent: StartedApp, client: StartedApp]> {
  const agent = await startApp(createAdapter(), {
    options: {
      publisher: {
        issuer: AGENT,
        key: { kid: 'k1', alg: 'RS256', key: rsa.privateKey },
        jwks: true,
        method: 'POST',
        allowHttp: true,
        allowPrivateNetworks: true,
        queue: new InProcessQueue({ clock }),
      },
      clock,
    },
  });
  const client = await startApp(createAdapter(), {
    options: {
      receiver: {
        path: 'notifications',
        sender: a2a({
          issuer: AGENT,
          audience: AUDIENCE,
          jwksUri: `${agent.origin}/.well-known/webhook-keys`,
          jwksFetch: { allowHttp: true, allowPrivateNetworks: true },
        }),
      },
      clock,
    },
    providers: [ReceivedEvents],
  });
  return [agent, client];
}

describe.each(adapters)('an agent that pushes task updates by A2A on %s', (_, createAdapter) => {
  let agent: StartedApp;
  let client: StartedApp;
  let updates: ReceivedEvents;
  beforeAll(async () => {
    [agent, client] = await startBoth(createAdapter);
    updates = client.app.get(ReceivedEvents);
  });
  beforeEach(() => void updates.seen.splice(0));
  afterAll(async () => {
    await client.app.close();
    await agent.app.close();
  });

  const push = (url: string, audience = AUDIENCE) =>
    agent.app.get(WebhookPublisher).send(url, 'task.completed', update, { audience });

  it('is verified by the client with the published keys', async () => {
    const { status } = await push(`${client.origin}/notifications`);

    expect(status).toBe('delivered');
    expect(updates.seen).toHaveLength(1);
    expect(updates.seen[0]).toMatchObject({
      event: 'task.completed',
      data: update,
      issuer: 'a2a',
      claims: { token: { iss: AGENT, aud: AUDIENCE } },
    });
  });

  it('is rejected by the client if it is meant for another one', async () => {
    const { statusCode } = await push(`${client.origin}/notifications`, 'https://other.example');

    expect(statusCode).toBe(401);
    expect(updates.seen).toEqual([]);
  });

  it('is verified by a client that follows the specification with jose', async () => {
    const keys = createRemoteJWKSet(new URL(`${agent.origin}/.well-known/webhook-keys`));
    const received: JWTPayload[] = [];
    const server: Server = createServer((request, response) => {
      const token = request.headers.authorization!.replace(/^Bearer /, '');
      void jwtVerify(token, keys, { issuer: AGENT, audience: AUDIENCE }).then(
        ({ payload }) => {
          received.push(payload);
          response.writeHead(204).end();
        },
        () => response.writeHead(401).end(),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { status } = await push(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    server.close();

    expect(status).toBe('delivered');
    expect(Object.keys(received[0]!)).toEqual(
      expect.arrayContaining(['iss', 'aud', 'iat', 'exp', 'jti']),
    );
  });
});

it.each(adapters)(
  'an update is handled once if its answers are lost, although each attempt has a new token, on %s',
  async (_, createAdapter) => {
    const [agent, client] = await startBoth(createAdapter, new TestClock());
    const tokens = new Set<string | undefined>();
    const proxy = createServer((incoming, outgoing) => {
      const { method, headers } = incoming;
      tokens.add(headers.authorization);
      const passed = forward(`${client.origin}/notifications`, { method, headers }, (answer) => {
        answer.resume();
        outgoing.writeHead(tokens.size > 2 ? answer.statusCode! : 504).end();
      });
      incoming.pipe(passed);
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/`;
    const { id } = await agent.app
      .get(WebhookPublisher)
      .send(url, 'task.completed', update, { audience: AUDIENCE });
    const attempts = await flushDeliveries(agent.app, { retries: true });
    const { seen } = client.app.get(ReceivedEvents);
    await client.app.close();
    await agent.app.close();
    proxy.close();

    expect(attempts.at(-1)).toMatchObject({ status: 'delivered', statusCode: 200 });
    expect(tokens.size).toBe(3);
    expect(seen.map((event) => event.id)).toEqual([id]);
  },
);
