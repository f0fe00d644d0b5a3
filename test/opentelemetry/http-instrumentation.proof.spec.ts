import { expect, it } from '@jest/globals';
import { ScriptProcess } from '../fixtures/child-process.mjs';

const SCRIPT = new URL('instrumented-app.process.mjs', import.meta.url);

/** Runs the application, and returns what it has printed. */
async function resultOf(settings: object): Promise<unknown> {
  let result: unknown;
  const child = new ScriptProcess(SCRIPT, settings, (word, rest = '') => {
    if (word === 'result') result = JSON.parse(decodeURIComponent(rest));
  });
  await child.ended();
  return result;
}

it.each([
  ['express', 'POST'],
  ['fastify', 'HEAD'],
])(
  'nests spans with instrumented HTTP, for a request to %s by %s, which has one traceparent',
  async (adapter, method) => {
    expect(await resultOf({ adapter, method, telemetry: true })).toEqual({
      status: 'delivered',
      spans: [
        'CLIENT send order.created < checkout',
        `CONSUMER process order.created < ${method} /webhooks`,
        `INTERNAL ${method} /webhooks < ${method}`,
        'INTERNAL checkout < none',
        'PRODUCER publish order.created < checkout',
        `SERVER ${method} < send order.created`,
      ],
      traces: 1,
      traceparents: ['send order.created'],
    });
  },
);

it('starts a trace of its own inside instrumented HTTP with continueTraces: false', async () => {
  const options = { continueTraces: false };
  const settings = { adapter: 'express', method: 'POST', telemetry: true, options };
  expect(await resultOf(settings)).toMatchObject({
    spans: [
      'CLIENT send order.created < checkout',
      'CONSUMER process order.created < POST /webhooks',
      'INTERNAL POST /webhooks < none ~ POST',
      'INTERNAL checkout < none',
      'PRODUCER publish order.created < checkout',
      'SERVER POST < send order.created',
    ],
    traces: 2,
  });
});

it.each(['POST', 'HEAD'])(
  'leaves a %s to its instrumentation without telemetry of ours',
  async (method) => {
    const settings = { adapter: 'express', method, telemetry: false };
    expect(await resultOf(settings)).toMatchObject({
      status: 'delivered',
      spans: expect.arrayContaining([`SERVER ${method} < ${method}`]),
      traceparents: [method],
    });
  },
);
