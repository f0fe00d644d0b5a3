import { beforeEach, describe, expect, it } from '@jest/globals';
import { once, type EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Controller, UseGuards, type CanActivate } from '@nestjs/common';
import { WebhookContext, WebhookRoute, type WebhookEvent } from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { HostileTarget, requestHead, WEBHOOK_PATHS } from '../fixtures/hostile-target.js';
import { RawConnection } from '../fixtures/raw-client.js';
import { receiverOptions, signed, startApp } from '../fixtures/receiver-app.js';
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
  'a sender that disconnects during a guard that runs after ours, on %s',
  (_, create) => {
    it('does not run a handler whose outcome could not be recorded', async () => {
      const gate = new Gate();
      const runs: string[] = [];
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
        @WebhookRoute('endpoint')
        receive(@WebhookContext() event: WebhookEvent): void {
          runs.push(event.id);
        }
      }
      const store = new ScriptedReplayStore();
      const { app, port } = await startApp(create(), {
        options: receiverOptions({ replay: { store } }),
        controllers: [Routes],
      });
      const accepted = once(app.getHttpServer() as EventEmitter, 'connection') as Promise<[Socket]>;
      const connection = await RawConnection.open(port);
      const [socket] = await accepted;
      const closed = new Promise((resolve) => socket.once('close', resolve));

      connection.write(requestHead('POST', '/endpoint', [`Authorization: Bearer ${signed()}`]));
      await gate.reached;
      connection.reset();
      await closed;
      gate.open();
      await app.close();

      expect(runs).toEqual([]);
    });
  },
);
