import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { SampleProcess } from './sample-process.js';

/** The commands of the samples' READMEs, with the settings of sample.env. */
describe('send.mjs', () => {
  let sample: SampleProcess;
  let url: string;

  beforeAll(async () => {
    sample = SampleProcess.start('01-receiver-express');
    url = `${await sample.origin()}/webhooks`;
  });
  afterAll(() => sample.stop());

  const run = async (...args: string[]): Promise<string> => {
    const sending = SampleProcess.run(['sample/send.mjs', ...args]);
    await sending.exitCode();
    return sending.output;
  };

  it.each([
    ['inline data', ['order.created', '{"id":"o-1","customer":"Ada","total":4200}'], /^204 /],
    ['invalid data', ['order.created', '{"id":"o-1"}'], /^422 invalid_payload/],
    [
      'a changed body',
      ['order.updated', '{"id":"o-1","status":"paid"}', '--tamper'],
      /^400 hash_mismatch .*"code":"hash_mismatch"/,
    ],
    ['data as another issuer', ['order.created', '{}', '--as', 'BANK'], /^401 /],
  ])('sends %s, and prints the answer', async (_, args, answer) => {
    expect(await run(url, ...args)).toMatch(answer);
  });

  it('prints its usage when called without arguments', async () => {
    expect(await run()).toMatch(/^Usage: node sample\/send\.mjs/);
  });
});

it.each([[[]], [['no-such-sample']]])('start.mjs %j lists the samples', async (args) => {
  const starting = SampleProcess.run(['sample/start.mjs', ...args]);

  expect(await starting.exitCode()).toBe(1);
  expect(starting.output).toMatch(/01-receiver-express, 02-receiver-fastify, 03-full-stack/);
});
