import { beforeEach, describe, expect, it } from '@jest/globals';
import { once, type EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Controller, Post, UseGuards, type CanActivate } from '@nestjs/common';
import {
  WebhookContext,
  WebhookGuard,
  WebhookRoute,
  type WebhookEvent,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { HostileTarget, requestHead, WEBHOOK_PATHS } from '../fixtures/hostile-target.js';
import { RawConnection } from '../fixtures/raw-client.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';

describe.each(adapters)(
  'a sender that disconnects before the answer, on %s',
  (_, createAdapter) => {
    let store: ScriptedReplayStore;
    let target: HostileTarget;

    beforeEach(async () => {
      store = new ScriptedReplayStore();
      target = await HostileTarget.start(createAdapter(), {
        // Unfinished handlers are reported after a millisecond, so the test need not wait.
        options: { ...receiverOptions({ replay: { store } }), shutdownTimeout: 1 },
      });
    });

    /** Sends a webhook, and disconnects while the store reserves the event. */
    const sendAndGo = async (request: string): Promise<void> => {
      store.gate = new Gate();
      const [connection, socket] = await target.connectBothEnds();
      const closed = new Promise((resolve) => socket.once('close', resolve));
      connection.write(request);
      await store.gate.reached;
      connection.reset();
      await closed;
      store.gate.open();
      store.gate = undefined;
    };

    it.each([
      // Routes that settle the event themselves run the handler, even if the answer is never read.
      [WEBHOOK_PATHS[0], 204, 1],
      [WEBHOOK_PATHS[1], 204, 1],
      // A route with only the guard does not run its handler, since the outcome could not be observed.
      ['/guarded', 201, 1],
    ])('leaves no reservation at %s', async (path, status, runs) => {
      const request = requestHead('POST', path, [`Authorization: Bearer ${signed()}`]);
      await sendAndGo(request);

      const connection = await target.connect();
      const again = await connection.write(request).answer();
      connection.destroy();
      await target.close();

      expect(again?.status).toBe(status);
      expect(target.events).toHaveLength(runs);
    });

    it.each([
      [WEBHOOK_PATHS[1], 204],
      ['/guarded', 201],
    ])(
      'does not run the handler if the request has already been answered, at %s',
      async (path, status) => {
        store.gate = new Gate();
        const requested = once(target.server, 'request') as Promise<[unknown, ServerResponse]>;
        const request = requestHead('POST', path, [`Authorization: Bearer ${signed()}`]);
        const connection = await target.connect();
        connection.write(request);
        const [, response] = await requested;
        await store.gate.reached;
        response.writeHead(503, { 'Content-Length': 0 }).end();
        expect((await connection.answer())?.status).toBe(503);
        store.gate.open();
        store.gate = undefined;

        const again = await target.connect();
        let answer = await again.write(request).answer();
        while (answer?.status === 409) answer = await again.write(request).answer();
        again.destroy();
        connection.destroy();
        await target.close();

        expect(answer?.status).toBe(status);
        expect(target.events).toHaveLength(1);
        expect(target.log.at('error')).toEqual([]);
      },
    );

    it.each([...WEBHOOK_PATHS, '/guarded'])('does not delay a shutdown at %s', async (path) => {
      await sendAndGo(requestHead('POST', path, [`Authorization: Bearer ${signed()}`]));
      await target.idle();

      await target.close();

      expect(target.log.at('warn').join()).not.toContain('still being handled');
    });
  },
);

describe.each(adapters)(
  'a sender that disconnects during a guard or a handler, on %s',
  (_, create) => {
    let gate: Gate;
    let runs: string[];

    class SlowGuard implements CanActivate {
      async canActivate(): Promise<boolean> {
        await gate.pass();
        return true;
      }
    }

    @Controller()
    class Routes {
      // Listed above, so that it runs after the guard of the endpoint.
      @UseGuards(SlowGuard)
      @WebhookRoute('guard-after')
      after(@WebhookContext() event: WebhookEvent): void {
        runs.push(event.id);
      }

      @UseGuards(SlowGuard, WebhookGuard)
      @Post('guard-before')
      before(@WebhookContext() event: WebhookEvent): void {
        runs.push(event.id);
      }

      @UseGuards(WebhookGuard)
      @Post('handler')
      async handle(@WebhookContext() event: WebhookEvent): Promise<void> {
        if (runs.push(event.id) === 1) await gate.pass();
      }
    }

    beforeEach(() => {
      gate = new Gate();
      runs = [];
    });

    /** Sends a webhook, and disconnects when it has reached the gate. */
    async function sendAndGo(path: string): Promise<StartedApp & { readonly request: string }> {
      const started = await startApp(create(), {
        options: { ...receiverOptions(), shutdownTimeout: 1 },
        controllers: [Routes],
      });
      const server = started.app.getHttpServer() as EventEmitter;
      const accepted = once(server, 'connection') as Promise<[Socket]>;
      const connection = await RawConnection.open(started.port);
      const [socket] = await accepted;
      const closed = new Promise((resolve) => socket.once('close', resolve));
      const request = requestHead('POST', path, [`Authorization: Bearer ${signed()}`]);
      connection.write(request);
      await gate.reached;
      connection.reset();
      await closed;
      return { ...started, request };
    }

    it('does not run a handler whose outcome could not be recorded', async () => {
      const { app } = await sendAndGo('/guard-after');
      gate.open();
      await app.close();

      expect(runs).toEqual([]);
    });

    it('does not delay a shutdown, before ours runs', async () => {
      const { app, logger } = await sendAndGo('/guard-before');
      gate.open();
      await new Promise((resolve) => setImmediate(resolve));
      await app.close();

      expect(runs).toEqual([]);
      expect(logger.at('warn').join()).not.toContain('still being handled');
    });

    it('keeps the event reserved while its handler runs', async () => {
      const { app, port, request } = await sendAndGo('/handler');
      const connection = await RawConnection.open(port);
      const again = await connection.write(request).answer();
      gate.open();
      connection.destroy();
      await app.close();

      expect(again?.status).toBe(409);
      expect(runs).toHaveLength(1);
    });
  },
);
