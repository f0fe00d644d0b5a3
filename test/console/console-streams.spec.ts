import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { afterEach, describe, expect, it } from '@jest/globals';
import { type CanActivate, Injectable } from '@nestjs/common';
import { TestClock } from 'nestjs-webhook-token/testing';
import { ConsoleActivity } from '../../lib/console/console-activity.js';
import { ConsoleStreams } from '../../lib/console/console.streams.js';
import { adapters } from '../fixtures/adapters.js';
import { call, type ConsoleApp, startConsole } from '../fixtures/console-app.js';

const API = '/webhooks/console/api';

describe.each(adapters)('the stream of changes on %s', (_, create) => {
  let started: ConsoleApp;
  afterEach(async () => started.app.close());

  it('closes the stream of a reader that does not keep up', async () => {
    started = await startConsole(create());
    const { app, origin } = started;
    const closed = new Promise<void>((resolve, reject) => {
      get(`${origin}${API}/events`, (response) => {
        response.once('data', () => {
          // 12 MB at once, more than the socket's buffers hold.
          for (let change = 1; change <= 120; change++) {
            app.get(ConsoleActivity).changed('deliveries', 'd'.repeat(100_000), undefined);
          }
          response.resume();
        });
        response.on('error', () => resolve()).on('close', resolve);
      }).on('error', reject);
    });

    await closed;
    expect((await call(origin, 'GET', `${API}/session`)).status).toBe(200);
  });

  it('forbids to compress it, which would hold changes back', async () => {
    started = await startConsole(create());
    const stream = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${started.origin}${API}/events`, resolve).on('error', reject);
    });
    stream.destroy();

    expect(stream.headers['cache-control']).toBe('no-store, no-transform');
  });

  it('ends a stream that opens during a shutdown, without refusing it', async () => {
    started = await startConsole(create());
    started.app.get(ConsoleStreams).beforeApplicationShutdown();
    const stream = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${started.origin}${API}/events`, resolve).on('error', reject);
    });
    await once(stream.resume(), 'end');

    // The page does not connect again after another status.
    expect(stream.statusCode).toBe(200);
  });

  it('ends streams after five minutes, so that a guard sees their readers again', async () => {
    let isAllowed = true;
    @Injectable()
    class Session implements CanActivate {
      canActivate = (): boolean => isAllowed;
    }
    const clock = new TestClock();
    started = await startConsole(create(), { guards: [Session] }, { clock });
    const { origin } = started;
    const stream = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${origin}${API}/events`, resolve).on('error', reject);
    });
    const ended = once(stream.resume(), 'end');
    isAllowed = false;
    await clock.advance(300_000);
    await ended;

    expect((await call(origin, 'GET', `${API}/events`)).status).toBe(403);
  });
});
