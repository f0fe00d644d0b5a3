import { get } from 'node:http';
import { afterEach, describe, expect, it } from '@jest/globals';
import { ConsoleActivity } from '../../lib/console/console-activity.js';
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
});
