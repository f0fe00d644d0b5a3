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
  ['undici', 'express', 'POST', 'auto'],
  ['node:http', 'fastify', 'HEAD', 'auto'],
  ['axios', 'express', 'POST', 'axios'],
])(
  'nests spans with instrumented HTTP, for a request by %s to %s, which has one traceparent',
  async (_, adapter, method, transport) => {
    expect(await resultOf({ adapter, method, transport, telemetry: true })).toEqual({
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

it.each([
  ['undici', 'POST'],
  ['node:http', 'HEAD'],
])('leaves a request by %s to its instrumentation without telemetry of ours', async (_, method) => {
  const settings = { adapter: 'express', method, transport: 'auto', telemetry: false };
  expect(await resultOf(settings)).toMatchObject({
    status: 'delivered',
    spans: expect.arrayContaining([`SERVER ${method} < ${method}`]),
    traceparents: [method],
  });
});
