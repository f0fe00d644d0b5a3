import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { ExpressAdapter } from '@nestjs/platform-express';
import { SECRET, startApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

jest.setTimeout(120_000);

const SCENARIOS = fileURLToPath(new URL('current-transaction.process.mjs', import.meta.url));

/** A fault with its code, and what the message tells its reader to do. */
const fault = (code: string, message: RegExp): object => ({
  error: { code, message: expect.stringMatching(message) },
});

(await describeWith('PostgreSQL'))('The current transaction of @nestjs-cls/transactional', () => {
  const database = new TestDatabase();
  const results = new Map<string, object>();

  beforeAll(async () => {
    const args = [SCENARIOS, urlOf('PostgreSQL'), database.newSchema()];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    for (const line of stdout.trim().split('\n')) {
      const { name, ...result } = JSON.parse(line) as { name: string };
      results.set(name, result);
    }
  });
  afterAll(async () => database.close());

  // Where nothing else is said: whether the event is recorded after the transaction it was published in is rolled back.
  const expected: readonly (readonly [name: string, result: object])[] = [
    ['committed', { value: { during: false, after: true } }],
    ['rolled back', { value: false }],
    ['decorated', { value: [true, false] }],
    ['inner, by Required, of one rolled back', { value: false }],
    ['inner, by Nested, of one rolled back', { value: false }],
    ['inner, by RequiresNew, of one rolled back', { value: true }],
    ['inner, by NotSupported, of one rolled back', { value: true }],
    ['nested, rolled back alone', { value: { outer: true, inner: false } }],
    ['none open', { value: true }],
    ['tx: false', { value: true }],
    ['tx of another transaction', { value: true }],
    ['two connections, that without a name', { value: false }],
    ['two connections, the other', { value: true }],
    ['one connection with a name', { value: false }],
    ['the connection that is chosen', { value: false }],
    ['not the connection that is chosen', { value: true }],
    ['transactionHost: false', { value: true }],
    ['names, and none is chosen', fault('unsupported_option', /publisher\.transactionHost/)],
    ['names, none is chosen, none open', { value: true }],
    ['a connection that nobody has', fault('invalid_configuration', /'ordres': register one/)],
    [
      'a database that no queue is in',
      fault('unsupported_option', /cannot be joined: .*publisher\.transactionHost/),
    ],
    [
      'a queue in memory',
      { value: { before: 0, recorded: true, warnings: [expect.stringMatching(/tx: false/)] } },
    ],
    // Whether it finds the transaction of the call that set the delivery going.
    ['a reaction to a delivery', { value: false }],
  ];

  it.each(expected)('%s', (name, result) => {
    expect(results.get(name)).toEqual(result);
  });

  it('went through nothing else', () => {
    expect([...results.keys()]).toEqual(expected.map(([name]) => name));
  });
});

describe('The option transactionHost', () => {
  it.each([[''], [true], [7]])('is not %j', async (transactionHost) => {
    const publisher = {
      issuer: 'https://billing.example',
      secret: SECRET,
      transactionHost: transactionHost as never,
    };

    await expect(startApp(new ExpressAdapter(), { options: { publisher } })).rejects.toMatchObject({
      message: expect.stringMatching(/publisher\.transactionHost.*connectionName/s),
    });
  });
});
